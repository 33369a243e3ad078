// dlbridge in C++17: owners, spans, and results that are tested or that throw.
//
//     dlb::tensor tensor = dlb::from_versioned(std::move(managed)).value();    // throws a dlb::error
//     for (float x : tensor.elements<float>().value()) sum += x;
//
//     if (auto imported = dlb::from_versioned(std::move(managed))) use(*imported);
//     else std::puts(imported.error().what());                                 // throws nothing
//
// Every function that can fail returns a `dlb::result`. Without exceptions (-fno-exceptions), `value()`
// of a failure ends the program. For all that is not here, call a function of dlbridge.h with `get()`, the
// handle of an owner.

#ifndef DLBRIDGE_HPP
#define DLBRIDGE_HPP

#include <dlbridge.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif

// Names differ with and without exceptions and with and without `std::span`, so that objects of all kinds can
// be linked together.
#if defined(__cpp_exceptions) && defined(__cpp_lib_span)
#define DLB_NAMESPACE with_exceptions_and_std_span
#elif defined(__cpp_exceptions)
#define DLB_NAMESPACE with_exceptions
#elif defined(__cpp_lib_span)
#define DLB_NAMESPACE without_exceptions_with_std_span
#else
#define DLB_NAMESPACE without_exceptions
#endif

namespace dlb {
inline namespace DLB_NAMESPACE {

// A failure: its status, and its message as `what()`.
class error : public std::runtime_error {
public:
    error(dlb_status status, const std::string &message)
        : std::runtime_error(message), status_(status) {}

    dlb_status status() const noexcept { return status_; }

    // The last failure of this thread.
    static error last(dlb_status status) { return {status, dlb_last_error()}; }

private:
    dlb_status status_;
};

// A value or a failure. `T` may be void.
template <class T>
class [[nodiscard]] result {
    using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

public:
    result(stored value) : content_(std::in_place_index<0>, std::move(value)) {}
    result(dlb::error error) : content_(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const noexcept { return content_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    // The value; of a failure, throws its `error`.
    stored &value() & { return check(), *std::get_if<0>(&content_); }
    const stored &value() const & { return check(), *std::get_if<0>(&content_); }
    stored value() && { return check(), std::move(*std::get_if<0>(&content_)); }

    // The value. Undefined for a failure.
    stored &operator*() & noexcept { return *std::get_if<0>(&content_); }
    const stored &operator*() const & noexcept { return *std::get_if<0>(&content_); }
    stored operator*() && noexcept { return std::move(*std::get_if<0>(&content_)); }
    stored *operator->() noexcept { return std::get_if<0>(&content_); }
    const stored *operator->() const noexcept { return std::get_if<0>(&content_); }

    // The failure. Undefined for a value.
    const dlb::error &error() const noexcept { return *std::get_if<1>(&content_); }

private:
    void check() const {
        if (has_value()) return;
#if defined(__cpp_exceptions)
        throw error();
#else
        std::fprintf(stderr, "dlbridge: %s\n", error().what());
        std::abort();
#endif
    }

    std::variant<stored, dlb::error> content_;
};

#if defined(__cpp_lib_span)
using std::span;
#else
// A pointer and a number of elements, as `std::span` of C++20.
template <class T>
class span {
public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    // A span of constants from one of the same numbers.
    template <class U, class = std::enable_if_t<std::is_convertible_v<U (*)[], T (*)[]>>>
    constexpr span(const span<U> &other) noexcept : data_(other.data()), size_(other.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }
    constexpr T &front() const noexcept { return data_[0]; }
    constexpr T &back() const noexcept { return data_[size_ - 1]; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }

    constexpr span first(std::size_t count) const noexcept { return {data_, count}; }
    constexpr span last(std::size_t count) const noexcept { return {data_ + (size_ - count), count}; }
    // The elements from `offset` on, by default all of them.
    constexpr span subspan(std::size_t offset, std::size_t count = std::size_t(-1)) const noexcept {
        return {data_ + offset, count == std::size_t(-1) ? size_ - offset : count};
    }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

namespace detail {

// Only these: a `std::complex<long double>` has no type of DLPack.
template <class T>
constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

inline result<void> done(dlb_status status) {
    if (status == DLB_STATUS_OK) return std::monostate();
    return error::last(status);
}

// C reads a text to its first zero byte, which would be another name.
inline result<void> check_text(const std::string &name) {
    if (name.find('\0') == std::string::npos) return std::monostate();
    return error(DLB_STATUS_INVALID, "name: expected a text without a zero byte, found one");
}

// `value` if a call succeeded, else its failure.
template <class T, class U>
result<T> made(dlb_status status, U &value) {
    if (status == DLB_STATUS_OK) return T(value);
    return error::last(status);
}

} // namespace detail

// The type of DLPack for a number of C++.
template <class Number>
constexpr dlb_dtype dtype_of() {
    using T = std::remove_cv_t<Number>;
    constexpr auto bits = static_cast<std::uint8_t>(sizeof(T) * 8);
    if constexpr (std::is_same_v<T, bool>) return {DLB_TYPE_BOOL, bits, 1};
    else if constexpr (std::is_integral_v<T>) return {std::is_signed_v<T> ? DLB_TYPE_INT : DLB_TYPE_UINT, bits, 1};
    else if constexpr (detail::is_complex<T>) return {DLB_TYPE_COMPLEX, bits, 1};
    else {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                      "no type of DLPack: name one where a function takes it");
        return {DLB_TYPE_FLOAT, bits, 1};
    }
}

// The name of a type, such as "float32".
inline std::string name(dlb_dtype dtype) {
    char text[64];
    dlb_dtype_name(dtype, text, sizeof text);
    return text;
}

// The name of a device, such as "cuda:0".
inline std::string name(dlb_device device) {
    char text[64];
    dlb_device_name(device, text, sizeof text);
    return text;
}

// The type of a name.
inline result<dlb_dtype> parse_dtype(const std::string &name) {
    if (auto text = detail::check_text(name); !text) return text.error();
    dlb_dtype dtype{};
    dlb_status status = dlb_dtype_parse(name.c_str(), &dtype);
    return detail::made<dlb_dtype>(status, dtype);
}

struct deleter {
    void operator()(DLManagedTensorVersioned *managed) const noexcept { dlb_delete_versioned(managed); }
    void operator()(DLManagedTensor *managed) const noexcept { dlb_delete_legacy(managed); }
};

// Managed tensors of DLPack that nothing imported yet, with their deleters.
using versioned = std::unique_ptr<DLManagedTensorVersioned, deleter>;
using legacy = std::unique_ptr<DLManagedTensor, deleter>;

// A reference to a tensor. A copy of it is another reference to the same tensor.
class tensor {
public:
    tensor() noexcept = default;
    // Takes a reference over.
    explicit tensor(dlb_tensor *owned) noexcept : handle_(owned) {}
    tensor(const tensor &other) noexcept : handle_(dlb_retain(other.handle_)) {}
    tensor(tensor &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    tensor &operator=(tensor other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~tensor() { dlb_release(handle_); }

    explicit operator bool() const noexcept { return handle_ != nullptr; }
    dlb_tensor *get() const noexcept { return handle_; }
    // The reference, which the caller releases from here on.
    dlb_tensor *release() noexcept { return std::exchange(handle_, nullptr); }

    // Everything below needs a tensor: not one that is default-constructed or moved from.
    const dlb_info &info() const noexcept { return *dlb_tensor_info(handle_); }
    dlb_dtype dtype() const noexcept { return info().dtype; }
    dlb_device device() const noexcept { return info().device; }
    std::size_t size() const noexcept { return info().len; }
    bool is_read_only() const noexcept { return (info().flags & DLB_FLAG_READ_ONLY) != 0; }
    span<const std::int64_t> shape() const noexcept { return {info().shape, ndim()}; }
    span<const std::int64_t> strides() const noexcept { return {info().strides, ndim()}; }
    std::size_t ndim() const noexcept { return static_cast<std::size_t>(info().ndim); }

    // `dlb_expect`: any type, any number of axes and a sum of DLB_EXPECT_*.
    result<void> expect(dlb_dtype dtype, int ndim = -1, std::uint32_t properties = 0) const {
        return detail::done(dlb_expect(handle_, dtype, ndim, properties));
    }

    // The elements in row-major order; fails unless they are contiguous in host memory and of this type. A
    // type without an equivalent in C++ is read as one of its size: `elements<std::uint16_t>(bfloat16)`.
    // So are bools, since a byte of another language may be neither 0 nor 1.
    template <class T>
    result<span<const T>> elements(dlb_dtype dtype = dtype_of<T>()) const {
        return elements_as<const T>(dtype, 0);
    }

    // The same to be written; fails for read-only memory as well.
    template <class T>
    result<span<T>> mutable_elements(dlb_dtype dtype = dtype_of<T>()) {
        static_assert(!std::is_const_v<T>, "elements to write are not constant");
        return elements_as<T>(dtype, DLB_EXPECT_WRITABLE);
    }

    // A row-major copy in host memory.
    result<tensor> copy() const {
        dlb_tensor *copy = nullptr;
        dlb_status status = dlb_copy(handle_, &copy);
        return detail::made<tensor>(status, copy);
    }

    // Exports, which consume the reference if they succeed.
    result<versioned> into_versioned() && { return consumed<versioned>(dlb_into_versioned); }
    result<legacy> into_legacy() && { return consumed<legacy>(dlb_into_legacy); }
    // A new reference to a Python object. On a thread that is attached to Python.
    result<_object *> into_python() && { return consumed<_object *>(dlb_into_python); }
    // The same for a capsule, which one consumer takes.
    result<_object *> into_capsule(bool is_versioned = true) && {
        return consumed<_object *>([=](dlb_tensor *handle, _object **out) {
            return dlb_into_capsule(handle, is_versioned, out);
        });
    }

private:
    template <class T, class Into>
    result<T> consumed(Into into) {
        std::remove_reference_t<decltype(*std::declval<T>())> *made = nullptr;
        dlb_status status = into(handle_, &made);
        if (status == DLB_STATUS_OK) handle_ = nullptr;
        return detail::made<T>(status, made);
    }

    template <class T>
    result<span<T>> elements_as(dlb_dtype dtype, std::uint32_t properties) const {
        static_assert(std::is_trivially_copyable_v<T>, "elements are plain numbers");
        static_assert(!std::is_same_v<std::remove_const_t<T>, bool>,
                      "read bools as std::uint8_t: elements<std::uint8_t>(dlb::dtype_of<bool>())");
        if (sizeof(T) * 8 != std::size_t(dtype.bits) * dtype.lanes)
            return error(DLB_STATUS_INVALID, "dtype: expected one of " + std::to_string(sizeof(T)) +
                                                 " bytes, found " + name(dtype));
        auto expected = expect(dtype, -1, DLB_EXPECT_HOST | DLB_EXPECT_CONTIGUOUS | properties);
        if (!expected) return expected.error();
        void *data = info().data;
        if (reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0)
            return error(DLB_STATUS_REFUSED, "data: expected an address that is a multiple of " +
                                                 std::to_string(alignof(T)) + "; use copy()");
        return span<T>(static_cast<T *>(data), size());
    }

    dlb_tensor *handle_ = nullptr;
};

// Imports a managed tensor. One that is rejected is deleted.
inline result<tensor> from_versioned(versioned managed) {
    dlb_tensor *imported = nullptr;
    dlb_status status = dlb_from_versioned(managed.get(), &imported);
    if (status == DLB_STATUS_OK) static_cast<void>(managed.release());
    return detail::made<tensor>(status, imported);
}

inline result<tensor> from_legacy(legacy managed) {
    dlb_tensor *imported = nullptr;
    dlb_status status = dlb_from_legacy(managed.get(), &imported);
    if (status == DLB_STATUS_OK) static_cast<void>(managed.release());
    return detail::made<tensor>(status, imported);
}

// Imports a Python object's memory. On a thread that is attached to Python.
inline result<tensor> from_python(_object *object, const dlb_request *request = nullptr) {
    dlb_tensor *imported = nullptr;
    dlb_status status = dlb_from_python(object, request, &imported);
    return detail::made<tensor>(status, imported);
}

// Zeros in host memory that is aligned to 64 bytes.
inline result<tensor> zeros(dlb_dtype dtype, const std::vector<std::int64_t> &shape) {
    dlb_tensor *made = nullptr;
    dlb_status status = dlb_new(dtype, static_cast<std::int32_t>(shape.size()), shape.data(), &made);
    return detail::made<tensor>(status, made);
}

template <class T>
result<tensor> zeros(const std::vector<std::int64_t> &shape) {
    return zeros(dtype_of<T>(), shape);
}

// A tensor over `memory`, which keeps `owner`. `struct_size`, `token` and `release` are filled in. The
// owner is destroyed on any thread; a destructor that throws ends the program.
template <class Owner>
result<tensor> share(std::unique_ptr<Owner> owner, dlb_memory memory) {
    memory.struct_size = sizeof memory;
    memory.token = owner.get();
    memory.release = [](void *token) noexcept {
        std::unique_ptr<Owner> dropped(static_cast<typename std::unique_ptr<Owner>::pointer>(token));
    };
    dlb_tensor *made = nullptr;
    dlb_status status = dlb_export(&memory, &made);
    if (status == DLB_STATUS_OK) static_cast<void>(owner.release());
    return detail::made<tensor>(status, made);
}

// The same with an owner that other code keeps as well.
template <class Owner, class Memory, class = std::enable_if_t<std::is_same_v<Memory, dlb_memory>>>
result<tensor> share(std::shared_ptr<Owner> owner, Memory memory) {
    return share(std::make_unique<std::shared_ptr<Owner>>(std::move(owner)), memory);
}

namespace detail {

// A tensor over the numbers of a container in `owner`, in row-major order.
template <class Owner, class Container>
result<tensor> share_elements(Owner owner, Container &values, std::vector<std::int64_t> shape) {
    using T = std::remove_pointer_t<decltype(values.data())>;
    const std::size_t size = values.size();
    if (shape.size() == 1 && shape[0] == -1) shape[0] = static_cast<std::int64_t>(size);
    std::size_t rest = size;
    bool fits = true, is_empty = false;
    for (std::int64_t extent : shape) {
        is_empty |= extent == 0;
        fits &= extent > 0 && rest % static_cast<std::size_t>(extent) == 0;
        if (extent > 0) rest /= static_cast<std::size_t>(extent);
    }
    if (is_empty ? size != 0 : !fits || rest != 1 || size == 0)
        return error(DLB_STATUS_INVALID, "shape: expected one of " + std::to_string(size) + " elements");
    dlb_memory memory{};
    memory.data = const_cast<std::remove_const_t<T> *>(values.data());
    memory.flags = std::is_const_v<T> ? DLB_FLAG_READ_ONLY : 0;
    memory.shape = shape.data();
    memory.device = {DLB_DEVICE_CPU, 0};
    memory.dtype = dtype_of<T>();
    memory.ndim = static_cast<std::int32_t>(shape.size());
    return share(std::move(owner), memory);
}

} // namespace detail

// A tensor that has a vector's numbers, in row-major order; by default with one axis.
template <class T>
result<tensor> share(std::vector<T> values, std::vector<std::int64_t> shape = {-1}) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no array of elements");
    auto owner = std::make_unique<std::vector<T>>(std::move(values));
    auto &kept = *owner;
    return detail::share_elements(std::move(owner), kept, std::move(shape));
}

// The same with an array's numbers.
template <class T, std::size_t N>
result<tensor> share(std::array<T, N> values, std::vector<std::int64_t> shape = {-1}) {
    auto owner = std::make_unique<std::array<T, N>>(std::move(values));
    auto &kept = *owner;
    return detail::share_elements(std::move(owner), kept, std::move(shape));
}

// The same with the numbers of a container that other code keeps as well. It must not be resized while a tensor has it.
// A constant container is read-only.
template <class Container>
result<tensor> share(std::shared_ptr<Container> values, std::vector<std::int64_t> shape = {-1}) {
    if (!values) return error(DLB_STATUS_INVALID, "values: expected a container, found a null pointer");
    auto &kept = *values;
    return detail::share_elements(std::move(values), kept, std::move(shape));
}

// Named tensors in a sealed memory file (Linux). They stay valid without it.
class sealed {
public:
    // Opens the file of a descriptor, which stays the caller's to close. Its sender need not be trusted.
    static result<sealed> open(int descriptor) {
        dlb_sealed *opened = nullptr;
        dlb_status status = dlb_sealed_open(descriptor, &opened);
        return detail::made<sealed>(status, opened);
    }

    // Makes a file with copies of tensors.
    static result<sealed> copy(const std::vector<std::pair<std::string, dlb::tensor>> &tensors) {
        std::vector<const char *> names;
        std::vector<const dlb_tensor *> handles;
        for (const auto &[name, tensor] : tensors) {
            if (auto text = detail::check_text(name); !text) return text.error();
            names.push_back(name.c_str());
            handles.push_back(tensor.get());
        }
        dlb_sealed *made = nullptr;
        dlb_status status = dlb_sealed_copy(names.data(), handles.data(), names.size(), &made);
        return detail::made<sealed>(status, made);
    }

    // Takes a file over.
    explicit sealed(dlb_sealed *owned) noexcept : handle_(owned) {}

    dlb_sealed *get() const noexcept { return handle_.get(); }
    // The file's descriptor, to be sent. It is closed with this object.
    int descriptor() const noexcept { return dlb_sealed_descriptor(get()); }

    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (std::size_t i = 0; i < dlb_sealed_count(get()); i++) names.push_back(dlb_sealed_name(get(), i));
        return names;
    }

    // A read-only tensor over the file's memory.
    result<dlb::tensor> tensor(const std::string &name) const { return found(dlb_sealed_tensor, name); }
    // A writable one. The first write to a page copies it; the file does not change.
    result<dlb::tensor> private_tensor(const std::string &name) const { return found(dlb_sealed_private, name); }

private:
    template <class Find>
    result<dlb::tensor> found(Find find, const std::string &name) const {
        if (auto text = detail::check_text(name); !text) return text.error();
        dlb_tensor *tensor = nullptr;
        dlb_status status = find(get(), name.c_str(), &tensor);
        return detail::made<dlb::tensor>(status, tensor);
    }

    struct closer {
        void operator()(dlb_sealed *sealed) const noexcept { dlb_sealed_close(sealed); }
    };
    std::unique_ptr<dlb_sealed, closer> handle_;
};

// A queue of releases for a chosen thread. `wake` is as for `dlb_queue_new`.
class queue {
public:
    explicit queue(int (*wake)(void *) = nullptr, void *context = nullptr)
        : handle_(dlb_queue_new(wake, context)) {}

    dlb_queue *get() const noexcept { return handle_.get(); }
    std::size_t pending() const noexcept { return dlb_queue_pending(get()); }
    // Releases the tensors in the queue, and returns their number.
    std::size_t drain() { return dlb_queue_drain(get()); }
    void mute() noexcept { dlb_queue_mute(get()); }

    // Moves a reference into the queue, for `drain` to release.
    result<void> push(tensor tensor) {
        dlb_status status = dlb_queue_release(get(), tensor.get());
        if (status == DLB_STATUS_OK) static_cast<void>(tensor.release());
        return detail::done(status);
    }

    // All tokens of exports that are no longer used.
    std::vector<void *> take() {
        std::vector<void *> tokens;
        std::size_t room = 0, found = 0;
        do {
            room = pending() + 1;
            tokens.resize(tokens.size() + room);
            found = dlb_queue_take(get(), tokens.data() + tokens.size() - room, room);
            tokens.resize(tokens.size() - room + found);
        } while (found == room);
        return tokens;
    }

    result<int> descriptor() {
        int descriptor = -1;
        dlb_status status = dlb_queue_descriptor(get(), &descriptor);
        return detail::made<int>(status, descriptor);
    }

private:
    struct closer {
        void operator()(dlb_queue *queue) const noexcept { dlb_queue_close(queue); }
    };
    std::unique_ptr<dlb_queue, closer> handle_;
};

} // namespace DLB_NAMESPACE
} // namespace dlb

#undef DLB_NAMESPACE

#endif // DLBRIDGE_HPP
