// The operator `scale` through PyTorch's stable ABI, whose kernels are boxed.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

using torch::stable::Tensor;

static Tensor scale(const Tensor &x, double factor) {
    STD_TORCH_CHECK(x.dim() == 1 && x.scalar_type() == torch::headeronly::ScalarType::Float,
                    "scale: expected a vector of float32");
    Tensor input = torch::stable::contiguous(x), out = torch::stable::empty_like(input);
    const float *from = input.const_data_ptr<float>();
    float *to = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < input.numel(); i++) {
        to[i] = from[i] * static_cast<float>(factor);
    }
    return out;
}

STABLE_TORCH_LIBRARY(bench_torch_stable, library) {
    library.def("scale(Tensor x, float factor) -> Tensor");
    library.def("scale_with_gradient(Tensor x, float factor) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(bench_torch_stable, CPU, library) {
    library.impl("scale", TORCH_BOX(&scale));
    library.impl("scale_with_gradient", TORCH_BOX(&scale));
}
