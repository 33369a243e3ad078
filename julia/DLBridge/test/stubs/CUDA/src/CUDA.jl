# A stub of CUDA: arrays of host memory that say they are of a device.
module CUDA

struct CuPtr{T}
    address::UInt
end

Base.UInt(pointer::CuPtr) = pointer.address

mutable struct Counted
    count::Int
end

struct Storage
    rc::Counted
end

struct CuArray{T,N} <: AbstractArray{T,N}
    data::Storage
    start::CuPtr{T}
    size::NTuple{N,Int}
end

Base.size(A::CuArray) = A.size
Base.pointer(A::CuArray) = A.start
Base.getindex(A::CuArray{T,N}, index::Vararg{Int,N}) where {T,N} =
    unsafe_load(Ptr{T}(A.start.address), LinearIndices(A)[index...])

Base.unsafe_wrap(::Type{CuArray}, start::CuPtr{T}, size::NTuple{N,Int}) where {T,N} =
    CuArray{T,N}(Storage(Counted(1)), start, size)

CuArray{T,N}(::UndefInitializer, size::NTuple{N,Int}) where {T,N} =
    CuArray{T,N}(Storage(Counted(1)), CuPtr{T}(0), size)

struct CuDevice
    id::Int
end

const CURRENT = Ref(CuDevice(0))
# The devices whose work was waited for.
const SYNCHRONIZED = CuDevice[]
synchronize() = (push!(SYNCHRONIZED, CURRENT[]); nothing)

function device!(work, device::CuDevice)
    before = CURRENT[]
    CURRENT[] = device
    try
        return work()
    finally
        CURRENT[] = before
    end
end

device(::CuArray) = CuDevice(3)
deviceid(device::CuDevice) = device.id

const UNIFIED = Ref(false)
is_unified(::CuArray) = UNIFIED[]

end
