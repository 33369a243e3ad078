# CuArray for memory of CUDA, both ways.
# Anything about host memory does not belong here.
# Invariant: work queued on shared memory is done before it is handed over, so any stream may go on.
module DLBridgeCUDAExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import CUDA
else
    import ..DLBridge
    import ..CUDA
end

using .CUDA: CuArray, CuPtr
using .DLBridge: Device, Info

const KIND = DLBridge.CUDA_KIND

# Whatever kind of array was asked for, it is a CuArray here.
function DLBridge.device_array(
    ::Val{KIND}, ::Type{<:AbstractArray{T,N}}, tensor, info::Info, reversed::Bool, copy::Bool,
) where {T,N}
    info.device.kind == KIND || DLBridge.throw_device(info)
    compact = (reversed ? info.is_row_major : info.is_column_major) != 0
    compact || throw(ArgumentError("layout: the strides are not compact, wanted a compact tensor"))
    info.flags & DLBridge.READ_ONLY == 0 || copy ||
        throw(ArgumentError("access: the memory is read-only; ask for copy = true"))
    size = DLBridge.dims(Val(N), info.shape, reversed)
    pointer = CuPtr{T}(UInt(info.data))
    array = unsafe_wrap(CuArray, pointer, size)
    if copy
        copied = Base.copy(array)
        CUDA.synchronize()
        DLBridge.release_now(tensor)
        return copied
    end
    finalizer(_ -> DLBridge.release_later(tensor), root_of(array))
    return array
end

# What all arrays made of this one by reshape or view hold.
function root_of(array::CuArray)
    hasproperty(array, :data) || return array
    data = getproperty(array, :data)
    return hasproperty(data, :rc) ? getproperty(data, :rc) : array
end

function DLBridge.memory(A::CuArray)
    CUDA.synchronize()
    return (Ptr{Cvoid}(UInt(pointer(A))), Base.size_to_strides(1, size(A)...))
end

DLBridge.device_of(A::CuArray) = Device(KIND, CUDA.deviceid(CUDA.device(A)))

end
