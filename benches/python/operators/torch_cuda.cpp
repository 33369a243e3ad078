// The operator `scale` on CUDA, as PyTorch's documentation writes one.
#include "cuda.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of PyTorch's C shim: C++'s function needs the headers of CUDA.
extern "C" int aoti_torch_get_current_cuda_stream(int device, void **stream);

static at::Tensor scale(const at::Tensor &x, double factor) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == at::kFloat, "scale: expected float32 on CUDA");
    at::Tensor input = x.contiguous(), out = at::empty_like(input);
    void *stream = nullptr;
    aoti_torch_get_current_cuda_stream(x.get_device(), &stream);
    bool launched = launch(input.const_data_ptr<float>(), out.mutable_data_ptr<float>(), static_cast<float>(factor),
                           static_cast<unsigned long long>(input.numel()), stream);
    TORCH_CHECK(launched, "scale: the kernel was not launched");
    return out;
}

static at::Tensor called(const at::Tensor &x, double factor) {
    static auto operation = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("bench_torch_cuda::scale", "")
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

TORCH_LIBRARY(bench_torch_cuda, library) { library.def("scale(Tensor x, float factor) -> Tensor"); }

TORCH_LIBRARY_IMPL(bench_torch_cuda, CUDA, library) { library.impl("scale", &scale); }

TORCH_LIBRARY_IMPL(bench_torch_cuda, Autograd, library) {
    library.impl("scale", [](const at::Tensor &x, double factor) { return Scale::apply(x, factor); });
}
