# Address and strides of a Julia array's elements.
# Invariant: for every index within the size, they lead to the element of that index.

"""
    DLBridge.memory(A) -> (pointer, strides)

The address of the first element of `A`, and the steps in elements along each dimension. Array types
of other packages add a method; `A` must then keep the memory alive and in place.
"""
memory(A::Array) = (pointer(A), strides(A))
memory(x::StridedTensor) = (check_open(x); (x.pointer, x.strides))

# Other dense arrays may be in the memory of a device, even if their pointer is a `Ptr`.
memory(A::AbstractArray) = throw_no_memory(A)

@noinline throw_no_memory(A) = throw(ArgumentError(
    "array: expected one whose elements lie at regular steps, found $(typeof(A)); " *
    "share a copy, Array(A)",
))

function memory(A::PermutedDimsArray{T,N,permutation}) where {T,N,permutation}
    start, steps = memory(parent(A))
    return (start, map(k -> steps[k], permutation))
end

memory(A::Transpose) = transposed(parent(A))
memory(A::Adjoint{<:Real}) = transposed(parent(A))

function transposed(A::AbstractMatrix)
    start, steps = memory(A)
    return (start, (steps[2], steps[1]))
end

function transposed(A::AbstractVector)
    start, (step,) = memory(A)
    return (start, (step * length(A), step))
end

function memory(A::SubArray{T}) where {T}
    start, steps = memory(parent(A))
    offset, kept = walk(A, steps, parentindices(A))
    # Without elements, the first index may lie outside.
    return (isempty(A) ? start : start + offset * sizeof(T), kept)
end

# The offset of the first element, and the steps of the dimensions that are kept.
walk(A, ::Tuple{}, ::Tuple{}) = (0, ())

function walk(A, steps::Tuple, indices::Tuple)
    offset, kept = walk(A, Base.tail(steps), Base.tail(indices))
    index, step = indices[1], steps[1]
    index isa Integer && return (offset + (Int(index) - 1) * step, kept)
    index isa AbstractRange{<:Integer} || throw_no_memory(A)
    isempty(index) && return (offset, (step, kept...))
    return (offset + (Int(first(index)) - 1) * step, (step * Int(Base.step(index)), kept...))
end

function memory(A::Base.ReshapedArray)
    start, steps = memory(parent(A))
    steps == Base.size_to_strides(1, size(parent(A))...) || throw_no_memory(A)
    return (start, Base.size_to_strides(1, size(A)...))
end

function memory(A::Base.ReinterpretArray{T}) where {T}
    start, steps = memory(parent(A))
    steps == Base.size_to_strides(1, size(parent(A))...) || throw_no_memory(A)
    return (Ptr{T}(start), Base.size_to_strides(1, size(A)...))
end

# The object to keep alive while the memory of A is exported. The memory must neither move nor be freed.
@static if VERSION >= v"1.11"
    # base/boot.jl, base/array.jl of Julia 1.11: growing puts another `Memory` into `ref`; a finalizer of
    # the array may free memory that `unsafe_wrap` was given. So both are kept. No test here runs this.
    root_of_share(A::Array) = (A, A.ref.mem)
    memory(A::Memory) = (pointer(A), (1,))
else
    root_of_share(A::Array) = A
    # A vector that shares its data with another array can never grow again, which would free its memory.
    root_of_share(A::Vector) = reshape(A, length(A), 1)
end

root_of_share(x::StridedTensor) = x

root_of_share(A::AbstractArray) = parent(A) === A ? A : (A, root_of_share(parent(A)))

# Where XLA's buffers begin; its CPU client copies a tensor at any other address.
const ALIGNMENT = 64

"""
    DLBridge.aligned_array(T, dims...)
    DLBridge.aligned_array(A)

An `Array` whose memory begins at a multiple of $ALIGNMENT bytes, with unspecified elements or those of `A`. JAX shares the memory of such
arrays and copies that of others; an `Array{T}(undef, dims...)` of less than 2 KiB is often one of the others.
"""
function aligned_array(::Type{T}, dims::Dims{N}) where {T,N}
    isbitstype(T) || throw(ArgumentError("dtype: expected a plain type, found $T"))
    bytes = Vector{UInt8}(undef, Base.checked_add(Base.checked_mul(sizeof(T), checked_length(dims)), ALIGNMENT))
    # Rounded up: within the first ALIGNMENT bytes.
    start = (UInt(pointer(bytes)) + UInt(ALIGNMENT - 1)) & ~UInt(ALIGNMENT - 1)
    array = unsafe_wrap(Array, Ptr{T}(start), dims)
    # The finalizer keeps the bytes for as long as the array and its reshapes.
    finalizer(_ -> bytes, root_of(array))
    return array
end

aligned_array(::Type{T}, dims::Integer...) where {T} = aligned_array(T, map(Int, dims))
aligned_array(A::AbstractArray{T}) where {T} = copyto!(aligned_array(T, size(A)), A)

function checked_length(dims)
    all(>=(0), dims) || throw(ArgumentError("size: expected no negative dimension, found $dims"))
    return reduce(Base.checked_mul, dims; init = 1)
end
