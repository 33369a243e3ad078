# A stand-in for CUDA: arrays of host memory that say they are of a device.
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

const SYNCHRONIZED = Ref(0)
synchronize() = (SYNCHRONIZED[] += 1; nothing)

struct CuDevice end
device(::CuArray) = CuDevice()
deviceid(::CuDevice) = 3

end
