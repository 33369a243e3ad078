# Copies of strided tensors, and tests for overlapping memory, because Julia copies an operand that overlaps the result.
# Invariant: no copy refers to the memory of the original.

# An `Array` of the elements.
elements(x::AbstractArray{T,N}) where {T,N} = copyto!(Array{T,N}(undef, size(x)), x)

function elements(x::StridedTensor{T,N}) where {T,N}
    array = Array{T,N}(undef, size(x))
    if is_plain_memory(x)
        root = x.root
        GC.@preserve root array unsafe_copyto!(pointer(array), x.pointer, length(array))
        return array
    end
    return copyto!(array, x)
end

# Whether the elements can be read as those of an `Array`.
function is_plain_memory(x::StridedTensor{T}) where {T}
    check_open(x)
    return x.is_aligned && T !== Bool && is_column_major(x)
end

Base.copy(x::StridedTensor) = elements(x)
Base.unaliascopy(x::StridedTensor) = StridedTensor(elements(x))

# Base 1.5 has none for these.
Base.unaliascopy(A::PermutedDimsArray{<:Any,<:Any,permutation,<:Any,<:StridedTensor}) where {permutation} =
    PermutedDimsArray(Base.unaliascopy(parent(A)), permutation)

# A field by field copy would have the pointer and no finalizer. One tensor stays one; a view is copied apart.
Base.deepcopy_internal(x::StridedTensor, known::IdDict) = get!(() -> Base.unaliascopy(x), known, x)::typeof(x)

# Another process cannot use the pointer.
function Serialization.serialize(s::AbstractSerializer, x::StridedTensor)
    Serialization.serialize_type(s, typeof(x))
    serialize(s, elements(x))
    return nothing
end

Serialization.deserialize(s::AbstractSerializer, ::Type{StridedTensor{T,N}}) where {T,N} =
    StridedTensor(deserialize(s)::Array{T,N})

# The addresses from the first byte of any element to the last; nothing if they are unknown.
function byte_range(x::StridedTensor{T}) where {T}
    isempty(x) && return UInt(1):UInt(0)
    steps = (x.size .- 1) .* x.strides
    low, high = reduce(+, min.(steps, 0); init = 0), reduce(+, max.(steps, 0); init = 0)
    start = UInt(x.pointer)
    return (start + low * sizeof(T)):(start + (high + 1) * sizeof(T) - 1)
end

byte_range(A::Array{T}) where {T} =
    isbitstype(T) ? (UInt(pointer(A)):(UInt(pointer(A)) + sizeof(A) - 1)) : nothing
byte_range(A::AbstractArray) = parent(A) === A ? nothing : byte_range(parent(A))

function may_overlap(A::AbstractArray, B::AbstractArray)
    a, b = byte_range(A), byte_range(B)
    (a === nothing || b === nothing) && return !Base._isdisjoint(Base.dataids(A), Base.dataids(B))
    return max(first(a), first(b)) <= min(last(a), last(b))
end

# For wrappers of more levels than the methods below know: the addresses where a plain array of the
# same memory would start.
Base.dataids(x::StridedTensor) = (UInt(x.pointer), first(byte_range(x)))

const SubTensor = SubArray{<:Any,<:Any,<:StridedTensor}
const OverTensor = Union{
    StridedTensor,SubTensor,Base.ReshapedArray{<:Any,<:Any,<:StridedTensor},
    Base.ReinterpretArray{<:Any,<:Any,<:Any,<:StridedTensor},
    PermutedDimsArray{<:Any,<:Any,<:Any,<:Any,<:StridedTensor},
    Transpose{<:Any,<:StridedTensor},Adjoint{<:Any,<:StridedTensor},
}

# Two imports of one memory may start at different addresses, which `dataids` alone cannot tell.
# The methods for SubArray are there because Base has its own.
for (A, B) in (
    (OverTensor, AbstractArray), (AbstractArray, OverTensor), (OverTensor, OverTensor),
    (SubTensor, SubArray), (SubArray, SubTensor), (SubTensor, SubTensor),
)
    @eval Base.mightalias(A::$A, B::$B) = may_overlap(A, B)
end

Base.mightalias(A::SubArray{T,<:Any,P}, B::SubArray{T,<:Any,P}) where {T,P<:StridedTensor} =
    may_overlap(A, B)
