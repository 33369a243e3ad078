// dlbridge.hpp: owners, spans, results. With -DDLB_TEST_NO_EXCEPTIONS nothing throws.

#include <dlbridge.hpp>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::printf("line %d: %s\n", __LINE__, #condition);                \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

namespace {

int owners = 0;

struct Owner {
    std::vector<double> values{1, 2, 3, 4, 5, 6};
    Owner() { ++owners; }
    ~Owner() { --owners; }
};

dlb_memory memory_of(Owner &owner) {
    static const std::int64_t shape[] = {2, 3};
    dlb_memory memory{};
    memory.data = owner.values.data();
    memory.shape = shape;
    memory.ndim = 2;
    memory.device = {DLB_DEVICE_CPU, 0};
    memory.dtype = dlb::dtype_of<double>();
    return memory;
}

dlb::tensor make(std::uint64_t flags = 0) {
    auto owner = std::make_unique<Owner>();
    dlb_memory memory = memory_of(*owner);
    memory.flags = flags;
    return dlb::share(std::move(owner), memory).value();
}

void owners_are_released_once() {
    {
        dlb::tensor first = make(), second = first, moved = std::move(first);
        CHECK(!first && moved.get() == second.get() && owners == 1);
        second = dlb::tensor();
        CHECK(owners == 1 && moved.ndim() == 2 && moved.shape()[1] == 3 && moved.strides()[0] == 3);
        moved = moved;
        CHECK(moved && owners == 1);
        std::thread([last = std::move(moved)] { CHECK(last.size() == 6); }).join();
    }
    CHECK(owners == 0);
    // What is refused is destroyed by its owner.
    auto owner = std::make_unique<Owner>();
    dlb_memory memory = memory_of(*owner);
    memory.device.kind = 0;
    auto refused = dlb::share(std::move(owner), memory);
    CHECK(!refused && refused.error().status() == DLB_STATUS_INVALID && owners == 0);
}

void elements_are_checked() {
    dlb::tensor tensor = make();
    auto values = tensor.elements<double>().value();
    CHECK(std::accumulate(values.begin(), values.end(), 0.0) == 21);
    tensor.mutable_elements<double>().value()[0] = 10;
    CHECK(values[0] == 10);
    auto wrong = tensor.elements<float>();
    CHECK(!wrong && wrong.error().status() == DLB_STATUS_REFUSED);
    CHECK(!std::strcmp(wrong.error().what(), "dtype: expected float32, found float64"));
    CHECK(!tensor.elements<std::uint8_t>(dlb::dtype_of<double>()));
    CHECK(tensor.elements<std::uint64_t>(dlb::dtype_of<double>()));
    dlb::tensor read_only = make(DLB_FLAG_READ_ONLY);
    CHECK(read_only.is_read_only() && read_only.elements<double>() && !read_only.mutable_elements<double>());
    dlb::tensor copy = read_only.copy().value();
    CHECK(copy.mutable_elements<double>() && copy.elements<double>()->size() == 6);
    CHECK(copy.expect(dlb::dtype_of<double>(), 2, DLB_EXPECT_HOST));
    CHECK(!copy.expect(dlb::dtype_of<double>(), 3));
    CHECK(tensor.elements<const double>().value().front() == 10);
    dlb::span<const double> all = tensor.mutable_elements<double>().value();
    CHECK(all.back() == 6 && all.subspan(2).size() == 4 && all.subspan(1, 2)[1] == 3);
    CHECK(all.first(2).size() == 2 && all.last(2).front() == 5);
    // A part at an odd address.
    auto owner = std::make_unique<Owner>();
    dlb_memory memory = memory_of(*owner);
    memory.byte_offset = 1;
    memory.ndim = 0;
    dlb::tensor odd = dlb::share(std::move(owner), memory).value();
    auto misaligned = odd.elements<double>();
    CHECK(!misaligned && std::strstr(misaligned.error().what(), "multiple of 8"));
}

void vectors_are_shared() {
    dlb::tensor tensor = dlb::share(std::vector<std::int16_t>{1, 2, 3, 4}, {2, 2}).value();
    CHECK(dlb::name(tensor.dtype()) == "int16" && dlb::name(tensor.device()) == "cpu");
    CHECK(tensor.elements<std::int16_t>().value()[3] == 4);
    CHECK(dlb::share(std::vector<float>{1, 2, 3}).value().shape()[0] == 3);
    CHECK(dlb::share(std::vector<float>{}).value().size() == 0);
    CHECK(dlb::share(std::vector<float>{}, {0, 7}).value().ndim() == 2);
    CHECK(dlb::share(std::vector<std::complex<float>>{{1, 2}}, {}).value().ndim() == 0);
    CHECK(!dlb::share(std::vector<float>{1, 2, 3}, {2, 2}));
    CHECK(!dlb::share(std::vector<float>{1, 2, 3}, {4}));
    CHECK(!dlb::share(std::vector<float>{1, 2, 3}, {-3}));
    CHECK(!dlb::share(std::vector<float>{1}, {0}));
    CHECK(!dlb::share(std::vector<float>{1, 2, 3, 4}, {INT64_MAX, 2}));
    dlb::tensor zeros = dlb::zeros<float>({3, 5}).value();
    CHECK(zeros.size() == 15 && reinterpret_cast<std::uintptr_t>(zeros.info().data) % 64 == 0);
    CHECK(!dlb::zeros<float>({-1}));
    CHECK(dlb::parse_dtype("bfloat16")->code == DLB_TYPE_BFLOAT && !dlb::parse_dtype("number"));
}

void shared_owners_and_arrays_are_shared() {
    auto owner = std::make_shared<Owner>();
    dlb::tensor tensor = dlb::share(owner, memory_of(*owner)).value();
    CHECK(owner.use_count() == 2 && tensor.info().data == owner->values.data());
    owner.reset();
    CHECK(owners == 1 && tensor.elements<double>().value()[5] == 6);
    tensor = dlb::tensor();
    CHECK(owners == 0);
    tensor = dlb::share(std::array<std::int32_t, 6>{1, 2, 3, 4, 5, 6}, {2, 3}).value();
    CHECK(tensor.ndim() == 2 && tensor.elements<std::int32_t>().value()[4] == 5);
    CHECK(!dlb::share(std::array<float, 3>{}, {4}));
    CHECK(dlb::share(std::array<float, 0>{}).value().size() == 0);
    auto values = std::make_shared<std::vector<float>>(4);
    tensor = dlb::share(values, {2, 2}).value();
    tensor.mutable_elements<float>().value()[3] = 7;
    CHECK((*values)[3] == 7 && !dlb::share(values, {3}));
    std::shared_ptr<const std::vector<float>> constant = values;
    CHECK(dlb::share(constant).value().is_read_only());
    CHECK(!dlb::share(std::shared_ptr<std::vector<float>>()));
}

void sealed_files_are_opened() {
#if defined(__linux__)
    dlb::sealed made = dlb::sealed::copy({{"one", make()}, {"two", make()}}).value();
    dlb::sealed sealed = dlb::sealed::open(made.descriptor()).value();
    CHECK(sealed.names() == (std::vector<std::string>{"one", "two"}));
    CHECK(sealed.tensor("two").value().is_read_only() && !sealed.tensor("three"));
    dlb::tensor writable = sealed.private_tensor("one").value();
    CHECK(writable.mutable_elements<double>().value().size() == 6 && owners == 0);
#endif
    CHECK(!dlb::sealed::open(-1));
}

void exports_come_back() {
    dlb::versioned managed = make().into_versioned().value();
    CHECK(owners == 1);
    dlb::tensor back = dlb::from_versioned(std::move(managed)).value();
    CHECK(!managed && owners == 1);
    dlb::tensor other = back;
    dlb::legacy legacy = std::move(other).into_legacy().value();
    CHECK(!other);
    legacy.reset();
    CHECK(dlb::from_legacy(std::move(back).into_legacy().value()).value().is_read_only());
    CHECK(owners == 0);
    // What fails is still there.
    dlb::tensor read_only = make(DLB_FLAG_READ_ONLY);
    CHECK(!std::move(read_only).into_legacy() && read_only && owners == 1);
    CHECK(!std::move(read_only).into_python() && read_only);
    CHECK(!std::move(read_only).into_capsule() && read_only);
    CHECK(!dlb::from_versioned(nullptr) && !dlb::from_python(nullptr));
    // An export that no consumer takes.
    managed = std::move(read_only).into_versioned().value();
    managed.reset();
    CHECK(owners == 0);
}

void empty_owners_fail_or_do_nothing() {
    dlb::tensor tensor = dlb::zeros<float>({3}).value();
    dlb::tensor &same = tensor;
    tensor = same;
    tensor = std::move(same);
    std::swap(tensor, same);
    CHECK(tensor && tensor.size() == 3);
    dlb::tensor moved = std::move(tensor);
    dlb::tensor copy = tensor;
    CHECK(!tensor && !copy && !tensor.copy() && !tensor.elements<float>() && !tensor.release());
    CHECK(!tensor.expect(dlb::dtype_of<float>()) && !std::move(tensor).into_versioned());
    CHECK(!std::move(tensor).into_legacy() && !std::move(tensor).into_python());
    dlb::queue queue;
    CHECK(queue.push(tensor) && queue.pending() == 0);
    dlb::queue other = std::move(queue);
    CHECK(!queue.push(moved) && !queue.descriptor() && queue.take().empty() && queue.drain() == 0);
    queue.mute();
    CHECK(!dlb::parse_dtype(std::string("float32\0", 8)));
#if defined(__linux__)
    CHECK(!dlb::sealed::copy({{"x", tensor}}));
    CHECK(!dlb::sealed::copy({{std::string("x\0y", 3), moved}}));
    dlb::sealed sealed = dlb::sealed::copy({{"x", moved}}).value();
    CHECK(sealed.tensor("x") && !sealed.tensor(std::string("x\0y", 3)));
    dlb::sealed kept = std::move(sealed);
    CHECK(sealed.names().empty() && sealed.descriptor() == -1 && !sealed.tensor("x"));
#endif
}

void queues_collect() {
    int wakes = 0;
    dlb::queue queue([](void *context) { return ++*static_cast<int *>(context); }, &wakes);
    CHECK(queue.push(make()) && queue.pending() == 1 && wakes == 1 && owners == 1);
    CHECK(queue.drain() == 1 && owners == 0);
    static float number = 1;
    for (int i = 0; i < 20; i++) {
        dlb_memory memory{};
        memory.struct_size = sizeof memory;
        memory.data = &number;
        memory.device = {DLB_DEVICE_CPU, 0};
        memory.dtype = dlb::dtype_of<float>();
        memory.token = &number;
        memory.queue = queue.get();
        dlb_tensor *tensor = nullptr;
        CHECK(dlb_export(&memory, &tensor) == DLB_STATUS_OK);
        dlb::tensor owned(tensor);
    }
    CHECK(queue.descriptor().value() >= 0 && queue.take().size() == 20 && queue.take().empty());
    dlb::queue moved = std::move(queue);
    moved.mute();
}

void failures_are_thrown() {
#if defined(__cpp_exceptions)
    try {
        dlb::from_legacy(nullptr).value();
        CHECK(!"a null pointer was imported");
    } catch (const dlb::error &error) {
        CHECK(error.status() == DLB_STATUS_INVALID);
        CHECK(!std::strcmp(error.what(), "managed: expected a managed tensor, found a null pointer"));
    }
    try {
        make().expect(dlb::dtype_of<float>()).value();
        CHECK(!"a float was found");
    } catch (const std::runtime_error &) {
    }
#endif
}

} // namespace

int main() {
    owners_are_released_once();
    elements_are_checked();
    vectors_are_shared();
    shared_owners_and_arrays_are_shared();
    sealed_files_are_opened();
    exports_come_back();
    empty_owners_fail_or_do_nothing();
    queues_collect();
    failures_are_thrown();
    CHECK(owners == 0);
    std::puts("ok");
    return 0;
}
