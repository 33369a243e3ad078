// The header in C++, with owners as C++ has them.

#include <dlbridge.hpp>

#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace {

struct Release {
    void operator()(dlb_tensor *tensor) const { dlb_release(tensor); }
};

using Tensor = std::unique_ptr<dlb_tensor, Release>;

void check(dlb_status status) {
    if (status != DLB_STATUS_OK)
        throw std::runtime_error(dlb_last_error());
}

int vectors = 0;

// A tensor that owns a vector.
Tensor share(std::vector<double> values) {
    auto owner = std::make_unique<std::vector<double>>(std::move(values));
    const int64_t shape[] = {static_cast<int64_t>(owner->size())};
    dlb_memory memory{};
    memory.struct_size = sizeof memory;
    memory.data = owner->data();
    memory.shape = shape;
    memory.device = {DLB_DEVICE_CPU, 0};
    memory.dtype = {DLB_TYPE_FLOAT, 64, 1};
    memory.ndim = 1;
    memory.token = owner.get();
    memory.release = [](void *token) {
        delete static_cast<std::vector<double> *>(token);
        --vectors;
    };
    dlb_tensor *tensor = nullptr;
    check(dlb_export(&memory, &tensor));
    // The tensor has the owner only now: what fails consumes nothing.
    static_cast<void>(owner.release());
    ++vectors;
    return Tensor(tensor);
}

int numbers = 0;

struct Number {
    double value = 1;
    Number() { ++numbers; }
    ~Number() { --numbers; }
};

// A tensor that owns an array.
bool an_array_is_an_owner() {
    auto owner = std::make_unique<Number[]>(3);
    const int64_t shape[] = {3};
    dlb_memory memory{};
    memory.data = owner.get();
    memory.shape = shape;
    memory.device = {DLB_DEVICE_CPU, 0};
    memory.dtype = dlb::dtype_of<double>();
    memory.ndim = 1;
    {
        dlb::tensor tensor = dlb::share(std::move(owner), memory).value();
        if (numbers != 3 || tensor.size() != 3)
            return false;
    }
    return numbers == 0;
}

} // namespace

int main() {
    if (!an_array_is_an_owner())
        return std::puts("an array was not released"), 1;
    {
        Tensor tensor = share({1, 2, 3});
        const dlb_info &info = *dlb_tensor_info(tensor.get());
        auto first = static_cast<const double *>(info.data);
        if (std::accumulate(first, first + info.len, 0.0) != 6)
            return std::puts("wrong values"), 1;
        if (vectors != 1)
            return std::puts("the vector is gone too early"), 1;
    }
    if (vectors != 0)
        return std::puts("the vector was not released"), 1;
    try {
        dlb_tensor *none = nullptr;
        check(dlb_from_legacy(nullptr, &none));
        return std::puts("a null pointer was taken"), 1;
    } catch (const std::runtime_error &error) {
        if (std::strcmp(error.what(), "managed: expected a managed tensor, found a null pointer") != 0)
            return std::puts(error.what()), 1;
    }
    std::puts("ok");
    return 0;
}
