// The operator `scale` as an XLA handler, and one that does nothing.
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error scale(double factor, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out) {
    for (size_t i = 0; i < x.element_count(); i++) {
        out->typed_data()[i] = x.typed_data()[i] * static_cast<float>(factor);
    }
    return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(scale_handler, scale,
                              ffi::Ffi::Bind().Attr<double>("factor").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

static ffi::Error nothing(ffi::RemainingArgs, ffi::RemainingRets, ffi::Dictionary) { return ffi::Error::Success(); }

XLA_FFI_DEFINE_HANDLER_SYMBOL(nothing_handler, nothing, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
