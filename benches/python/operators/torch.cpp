// The operator `scale` as PyTorch's documentation writes it: TORCH_LIBRARY, whose kernels are C++ functions.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static at::Tensor scale(const at::Tensor &x, double factor) {
    TORCH_CHECK(x.dim() == 1 && x.scalar_type() == at::kFloat, "scale: expected a vector of float32");
    at::Tensor input = x.contiguous(), out = at::empty_like(input);
    const float *from = input.const_data_ptr<float>();
    float *to = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < input.numel(); i++) {
        to[i] = from[i] * static_cast<float>(factor);
    }
    return out;
}

// The same for each row of a matrix.
static at::Tensor scale_rows(const at::Tensor &x, double factor) {
    TORCH_CHECK(x.dim() == 2 && x.scalar_type() == at::kFloat, "scale_rows: expected a matrix of float32");
    at::Tensor input = x.contiguous(), out = at::empty_like(input);
    const float *from = input.const_data_ptr<float>();
    float *to = out.mutable_data_ptr<float>();
    int64_t length = input.size(1);
    for (int64_t row = 0; row < input.size(0); row++, from += length, to += length) {
        for (int64_t i = 0; i < length; i++) {
            to[i] = from[i] * static_cast<float>(factor);
        }
    }
    return out;
}

static at::Tensor called(const at::Tensor &x, double factor) {
    static auto operation = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("bench_torch::scale_with_gradient", "")
                                .typed<at::Tensor(const at::Tensor &, double)>();
    return operation.call(x, factor);
}

struct Scale : torch::autograd::Function<Scale> {
    static at::Tensor forward(AutogradContext *context, const at::Tensor &x, double factor) {
        at::AutoDispatchBelowAutograd guard;
        context->saved_data["factor"] = factor;
        return called(x, factor);
    }

    static variable_list backward(AutogradContext *context, const variable_list &gradients) {
        return {called(gradients[0], context->saved_data["factor"].toDouble()), at::Tensor()};
    }
};

TORCH_LIBRARY(bench_torch, library) {
    library.def("scale(Tensor x, float factor) -> Tensor");
    library.def("scale_rows(Tensor x, float factor) -> Tensor");
    library.def("scale_with_gradient(Tensor x, float factor) -> Tensor");
}

TORCH_LIBRARY_IMPL(bench_torch, CPU, library) {
    library.impl("scale", &scale);
    library.impl("scale_rows", &scale_rows);
    library.impl("scale_with_gradient", &scale);
}

TORCH_LIBRARY_IMPL(bench_torch, Autograd, library) {
    library.impl("scale_with_gradient", [](const at::Tensor &x, double factor) { return Scale::apply(x, factor); });
}
