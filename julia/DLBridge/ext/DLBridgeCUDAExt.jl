# Import and export of CuArrays.
# Invariant: work queued on the memory is done before it is exported, so that consumers may use any stream.
# Tests run this with a stub; it relies on src/array.jl and lib/cudadrv/state.jl of CUDA.jl 3 to 5.
module DLBridgeCUDAExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import CUDA
else
    import ..DLBridge
    import ..CUDA
end

using .CUDA: CuArray, CuDevice, CuPtr
using .DLBridge: Device, Info, Request

const KIND = DLBridge.CUDA_KIND
const MANAGED = DLBridge.CUDA_MANAGED_KIND

# The result is a CuArray for every requested array type.
function DLBridge.device_array(
    ::Val{KIND}, ::Type{<:AbstractArray{T,N}}, tensor, info::Info, request::Request,
) where {T,N}
    reversed, copy = request.reversed, request.copy
    contiguous = (reversed ? info.is_row_major : info.is_column_major) != 0
    contiguous || throw(ArgumentError("layout: expected a contiguous tensor, found other strides"))
    info.flags & DLBridge.READ_ONLY == 0 || copy || !request.write ||
        throw(ArgumentError("access: expected writable memory, found read-only memory; ask for write = false or copy = true"))
    size = DLBridge.dims(Val(N), info.shape, reversed)
    # A new array belongs to the current device.
    return CUDA.device!(CuDevice(info.device.id)) do
        if info.len == 0
            # There may be no pointer to wrap.
            DLBridge.release_now(tensor)
            return CuArray{T,N}(undef, size)
        end
        array = unsafe_wrap(CuArray, CuPtr{T}(UInt(info.data)), size)
        if copy
            copied = Base.copy(array)
            CUDA.synchronize()
            DLBridge.release_now(tensor)
            return copied
        end
        finalizer(_ -> DLBridge.release_later(tensor), root_of(array))
        return array
    end
end

# The object that the array's reshapes and views hold as well.
function root_of(array::CuArray)
    hasproperty(array, :data) || return array
    data = getproperty(array, :data)
    return hasproperty(data, :rc) ? getproperty(data, :rc) : array
end

function DLBridge.memory(A::CuArray)
    CUDA.device!(CUDA.synchronize, CUDA.device(A))
    return (Ptr{Cvoid}(UInt(pointer(A))), Base.size_to_strides(1, size(A)...))
end

DLBridge.device_of(A::CuArray) =
    Device(CUDA.is_unified(A) ? MANAGED : KIND, CUDA.deviceid(CUDA.device(A)))

__init__() = (DLBridge.USES_CUDA[] = true; nothing)

end
