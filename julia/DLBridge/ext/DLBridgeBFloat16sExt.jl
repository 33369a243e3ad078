# BFloat16 as an element type.
module DLBridgeBFloat16sExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import BFloat16s
else
    import ..DLBridge
    import ..BFloat16s
end

using .BFloat16s: BFloat16

# kDLBfloat
DLBridge.dtype(::Type{BFloat16}) = DLBridge.DType(4, 16, 1)

__init__() = DLBridge.register_dtype(BFloat16)

end
