# Element types: from DLPack's to Julia's and back, and their names.
# Invariant: `julia_type(dtype(T)) === T` for every registered `T`.

"""
    DLBridge.dtype(T)

The DLPack type of elements of type `T`. Packages with element types of their own add a method, and
call [`DLBridge.register_dtype`](@ref).
"""
dtype(::Type{T}) where {T} = throw(ArgumentError("dtype: expected a type that DLPack has a name for, found $T"))

# code, bits
const STANDARD = (
    Int8 => (0, 8), Int16 => (0, 16), Int32 => (0, 32), Int64 => (0, 64), Int128 => (0, 128),
    UInt8 => (1, 8), UInt16 => (1, 16), UInt32 => (1, 32), UInt64 => (1, 64), UInt128 => (1, 128),
    Float16 => (2, 16), Float32 => (2, 32), Float64 => (2, 64),
    Complex{Float16} => (5, 32), ComplexF32 => (5, 64), ComplexF64 => (5, 128), Bool => (6, 8),
)

const JULIA_TYPES = Dict{DType,DataType}()

for (T, (code, bits)) in STANDARD
    @eval dtype(::Type{$T}) = DType($code, $bits, 1)
    JULIA_TYPES[DType(code, bits, 1)] = T
end

"""
    DLBridge.register_dtype(T)

Makes `T` the type of elements of type `DLBridge.dtype(T)`. It must be a plain type of that size.
"""
function register_dtype(::Type{T}) where {T}
    isbitstype(T) || throw(ArgumentError("dtype: $T is no plain type"))
    found, expected = sizeof(T), cld(Int(dtype(T).bits) * Int(dtype(T).lanes), 8)
    found == expected || throw(ArgumentError("dtype: expected $expected bytes, found $found in $T"))
    JULIA_TYPES[dtype(T)] = T
    return nothing
end

# Packages whose element types this package knows, by the codes of DLPack.
const TYPE_PACKAGES = Dict(4 => "BFloat16s", 10 => "DLFP8Types", 11 => "DLFP8Types", 12 => "DLFP8Types", 13 => "DLFP8Types")

function julia_type(found::DType)
    T = get(JULIA_TYPES, found, nothing)
    T === nothing && throw_no_type(found)
    return T
end

@noinline function throw_no_type(found::DType)
    package = found.lanes == 1 ? get(TYPE_PACKAGES, Int(found.code), nothing) : nothing
    throw(ArgumentError("dtype: found $(name(found)), which has no Julia type here; " * (
        package === nothing ? "packages that have one make it known by DLBridge.register_dtype" : "load $package"
    )))
end

const NAME_SIZE = 64

name(dtype::DType) = read_name() do buffer
    ccall(dlb_dtype_name[], Csize_t, (DType, Ptr{UInt8}, Csize_t), dtype, buffer, NAME_SIZE)
end

name(device::Device) = read_name() do buffer
    ccall(dlb_device_name[], Csize_t, (Device, Ptr{UInt8}, Csize_t), device, buffer, NAME_SIZE)
end

function read_name(write)
    buffer = zeros(UInt8, NAME_SIZE)
    write(buffer)
    return GC.@preserve buffer unsafe_string(pointer(buffer))
end
