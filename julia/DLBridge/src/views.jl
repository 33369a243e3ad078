# Views and reshapes of a tensor, which are tensors over the same memory: the functions of this package need no method for
# Julia's wrappers of them.
# Invariant: each element of the result is an element of the tensor.

# No `Bool`: Julia takes an array of them for a mask.
const ViewIndex = Union{Colon,Integer,AbstractRange{<:Union{Signed,Unsigned}}}

"""
    view(x::StridedTensor, indices...)

By integers, ranges and colons, a `StridedTensor` over the same memory, which it keeps alive; `close` of one closes both.
By other indices, a `SubArray`.
"""
Base.@propagate_inbounds function Base.view(x::StridedTensor{<:Any,N}, indices::Vararg{ViewIndex,N}) where {N}
    found = to_indices(x, indices)
    @boundscheck checkbounds(x, found...)
    check_open(x)
    offset, steps = walk(x, x.strides, found)
    size = lengths(found)
    # Without elements, the first index may lie outside.
    return part(x, 0 in size ? 0 : offset, size, steps)
end

lengths(::Tuple{}) = ()
lengths(indices::Tuple) =
    indices[1] isa Integer ? lengths(Base.tail(indices)) : (length(indices[1]), lengths(Base.tail(indices))...)

part(x::StridedTensor{T}, offset, size::NTuple{N,Int}, steps) where {T,N} =
    StridedTensor{T,N}(x.pointer + offset * sizeof(T), size, steps, x.is_readonly, x.is_aligned, x.root)

# A tensor where the elements lie at one step in memory, else Julia's wrapper.
for Size in (Dims, Tuple{Vararg{Union{Int,Colon}}})
    @eval function Base.reshape(x::StridedTensor, size::$Size)
        # Checks the size, and replaces a colon.
        wrapped = invoke(reshape, Tuple{AbstractArray,$Size}, x, size)
        step = ndims(x) == 1 ? x.strides[1] : 1
        x.strides == step .* Base.size_to_strides(1, x.size...) || return wrapped
        return part(x, 0, Base.size(wrapped), step .* Base.size_to_strides(1, Base.size(wrapped)...))
    end
end

is_column_major(x::StridedTensor) = x.strides == Base.size_to_strides(1, x.size...)
