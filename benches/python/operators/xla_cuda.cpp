// The operator `scale` as an XLA handler for CUDA.
#include "cuda.hpp"

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error scale(void *stream, double factor, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out) {
    bool launched = launch(x.typed_data(), out->typed_data(), static_cast<float>(factor), x.element_count(), stream);
    return launched ? ffi::Error::Success() : ffi::Error::Internal("scale: the kernel was not launched");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(scale_cuda_handler, scale,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void *>>()
                                  .Attr<double>("factor")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
