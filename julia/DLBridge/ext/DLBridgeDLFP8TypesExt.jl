# The 8-bit floats of DLFP8Types as element types.
module DLBridgeDLFP8TypesExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import DLFP8Types
else
    import ..DLBridge
    import ..DLFP8Types
end

using .DLFP8Types: Float8_E4M3FN, Float8_E4M3FNUZ, Float8_E5M2, Float8_E5M2FNUZ

# kDLFloat8_e4m3fn and its neighbours
const CODES = (
    Float8_E4M3FN => 10, Float8_E4M3FNUZ => 11, Float8_E5M2 => 12, Float8_E5M2FNUZ => 13,
)

for (T, code) in CODES
    @eval DLBridge.dtype(::Type{$T}) = DLBridge.DType($code, 8, 1)
end

__init__() = foreach(pair -> DLBridge.register_dtype(first(pair)), CODES)

end
