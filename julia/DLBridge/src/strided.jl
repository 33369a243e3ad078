# The array type for memory that an `Array` cannot represent: strided, read-only, misaligned, `Bool`s of other bytes.
# Invariant: while the root is open, every index within the size leads to an element of the tensor.

# Owns the memory of imported arrays: a tensor, until it is closed or unreachable, or, for a copy of
# its elements, an `Array`.
mutable struct Root
    # Null once it is closed.
    tensor::Ptr{Cvoid}
    copied::Any
    # How many exports of this memory are alive, and the root that was imported from the same address
    # before this one (see closing.jl).
    shares::Int
    next::Union{Nothing,Root}
    # The address of the plain array that the tensor arrived as, and the array's identity.
    place::UInt
    array::UInt
    # 1 from the first close on: of several, on any threads, one releases the tensor.
    closed::Threads.Atomic{Int}

    Root(tensor::Ptr{Cvoid}, place::UInt = UInt(0), array::UInt = UInt(0)) =
        new(tensor, nothing, 0, nothing, place, array, Threads.Atomic{Int}(0))
    Root(copied::Array) = new(NO_TENSOR, copied, 0, nothing, UInt(0), UInt(0), Threads.Atomic{Int}(0))
end

# In place of a tensor where there is none to release; it is never read.
const NO_TENSOR = Ptr{Cvoid}(UInt(1))

# Runs as a finalizer.
function close_root(root::Root)
    Threads.atomic_xchg!(root.closed, 1) == 0 || return nothing
    tensor = root.tensor
    root.tensor = C_NULL
    tensor == NO_TENSOR || release_later(tensor)
    return nothing
end

"""
    StridedTensor{T,N} <: AbstractArray{T,N}

A tensor's memory with any strides: negative, zero, permuted. It may be read-only, which
[`DLBridge.is_readonly`](@ref) tells; writing is an error then. `close(x)` releases the memory
early; `x` cannot be read any more afterwards. `copy(x)` is an `Array`; `deepcopy(x)` and `x` on
another process are writable `StridedTensor`s over memory of their own.
"""
struct StridedTensor{T,N} <: AbstractArray{T,N}
    pointer::Ptr{T}
    size::NTuple{N,Int}
    strides::NTuple{N,Int}
    is_readonly::Bool
    is_aligned::Bool
    root::Root
end

# A writable one over a Julia array.
StridedTensor(A::Array{T,N}) where {T,N} =
    StridedTensor{T,N}(pointer(A), size(A), strides(A), false, true, Root(A))

Base.size(x::StridedTensor) = x.size
Base.strides(x::StridedTensor) = x.strides
Base.stride(x::StridedTensor, k::Integer) = k <= ndims(x) ? x.strides[k] : length(x)
Base.IndexStyle(::Type{<:StridedTensor}) = IndexCartesian()
Base.elsize(::Type{<:StridedTensor{T}}) where {T} = sizeof(T)
Base.isopen(x::StridedTensor) = x.root.tensor != C_NULL

"The address of element `[1, 1, ...]`, for a function that only reads if [`is_readonly`](@ref) is true."
Base.pointer(x::StridedTensor) = (check_open(x); x.pointer)
Base.pointer(x::StridedTensor, index::Integer) =
    (check_open(x); address(x, Tuple(CartesianIndices(x)[index])))

# Julia calls this for an array that is passed to a `ccall`, as BLAS's wrappers do. No signature says whether the callee
# writes, so read-only memory is refused.
function Base.unsafe_convert(::Type{Ptr{T}}, x::StridedTensor{T}) where {T}
    x.is_readonly && throw_readonly_pointer()
    return pointer(x)
end

@noinline throw_readonly_pointer() = throw(ArgumentError(
    "pointer: expected writable memory for a function that may write, found read-only memory; pass copy(A), or " *
    "pointer(A) where the function only reads",
))

@inline check_open(x::StridedTensor) = isopen(x) ? nothing : throw_closed()
@noinline throw_closed() = throw(ArgumentError("array: expected an open one, found one that close has released"))

@inline function address(x::StridedTensor{T,N}, index::NTuple{N,Int}) where {T,N}
    offset = 0
    for k in 1:N
        offset += (index[k] - 1) * x.strides[k]
    end
    return x.pointer + offset * sizeof(T)
end

Base.@propagate_inbounds function Base.getindex(x::StridedTensor{T,N}, index::Vararg{Int,N}) where {T,N}
    @boundscheck checkbounds(x, index...)
    check_open(x)
    root = x.root
    GC.@preserve root begin
        return read_element(address(x, index), x.is_aligned)
    end
end

Base.@propagate_inbounds function Base.setindex!(x::StridedTensor{T,N}, value, index::Vararg{Int,N}) where {T,N}
    @boundscheck checkbounds(x, index...)
    check_open(x)
    x.is_readonly && throw_readonly()
    element = convert(T, value)::T
    root = x.root
    GC.@preserve root write_element(address(x, index), element, x.is_aligned)
    return x
end

@noinline throw_readonly() = throw(ArgumentError("array: expected writable memory, found read-only memory; copy it with copy(A)"))

@inline read_element(address::Ptr{T}, is_aligned::Bool) where {T} =
    is_aligned ? unsafe_load(address) : read_bytes(address)

# Any byte but 0 is true, as in NumPy; Julia knows only 0 and 1.
@inline read_element(address::Ptr{Bool}, ::Bool) = unsafe_load(Ptr{UInt8}(address)) != 0x00

@inline write_element(address::Ptr{T}, value::T, is_aligned::Bool) where {T} =
    is_aligned ? unsafe_store!(address, value) : write_bytes(address, value)

@noinline function read_bytes(address::Ptr{T}) where {T}
    element = Ref{T}()
    GC.@preserve element unsafe_copyto!(
        Ptr{UInt8}(pointer_from_objref(element)), Ptr{UInt8}(address), sizeof(T),
    )
    return element[]
end

@noinline function write_bytes(address::Ptr{T}, value::T) where {T}
    element = Ref{T}(value)
    GC.@preserve element unsafe_copyto!(
        Ptr{UInt8}(address), Ptr{UInt8}(pointer_from_objref(element)), sizeof(T),
    )
    return nothing
end

"""
    DLBridge.is_readonly(A)

Whether writing to `A` throws, because its memory is read-only.
"""
is_readonly(x::StridedTensor) = x.is_readonly
is_readonly(A::AbstractArray) = parent(A) === A ? false : is_readonly(parent(A))
