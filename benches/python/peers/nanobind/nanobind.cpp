// The paths of the benchmark through nanobind, as the page on nb::ndarray shows them.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

static float first(Matrix matrix) {
    if (matrix.size() == 0) {
        throw nb::type_error("expected elements");
    }
    return *matrix.data();
}

template <typename Framework>
static nb::ndarray<float, Framework> make() {
    float *elements = new float[6]{1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f};
    nb::capsule owner(elements, [](void *data) noexcept { delete[] static_cast<float *>(data); });
    return nb::ndarray<float, Framework>(elements, {2, 3}, owner);
}

NB_MODULE(bench_nanobind, module) {
    module.def("nothing", [] {});
    module.def("ignore", [](nb::handle) { return 1.5f; });
    module.def("read", first, nb::arg().noconvert());
    module.def("make", make<nb::array_api>);
    module.def("make_numpy", make<nb::numpy>);
    module.def("make_torch", make<nb::pytorch>);
}
