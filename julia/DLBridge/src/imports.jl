# From a Python object to a Julia array over its memory.
# Getting at the Python object belongs to bridges.jl.
# Invariant: a tensor that was taken is owned by exactly one array, or released before an error leaves.

"""
    from_dlpack(o; layout = nothing, copy = false)

A Julia array over the memory of the Python array `o`: an object with `__dlpack__`, or a capsule.

A row-major tensor arrives with its dimensions reversed, a column-major one as it is; `layout =
RowMajor` or `ColMajor` makes the choice explicit. The array is a plain `Array` where that is right
(host memory, writable, contiguous, aligned, no `Bool`), else a [`StridedTensor`](@ref); memory of
CUDA is a `CuArray`. `copy = true` gives an `Array` of Julia's own instead.

    from_dlpack(Matrix{Float32}, RowMajor, o; copy = false)

The same for a type that is known: a tensor of another type, rank or layout is an `ArgumentError`,
and the result's type is inferred. For `AbstractMatrix{Float32}` it is always a `StridedTensor`.
"""
function from_dlpack(o; layout = nothing, copy::Bool = false)
    return arrive(take_tensor(o), layout, copy)
end

"""
    DLBridge.unsafe_from_dlpack(pointer; layout = nothing, copy = false)

As [`from_dlpack`](@ref), of a `DLManagedTensorVersioned *` that C code gives away. The pointer must be
valid, and is not to be used again.
"""
function unsafe_from_dlpack(pointer::Ptr{Cvoid}; layout = nothing, copy::Bool = false)
    tensor = Ref{Ptr{Cvoid}}(C_NULL)
    check(ccall(dlb_from_versioned[], Cint, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), pointer, tensor))
    return arrive(tensor[], layout, copy)
end

function arrive(tensor::Ptr{Cvoid}, layout, copy::Bool)
    try
        info = tensor_info(tensor)
        reversed = layout === nothing ? is_reversed(info) : is_reversed(layout)
        T = julia_type(info.dtype)
        return arrive(T, Val(Int(info.rank)), tensor, info, reversed, copy)
    catch
        release_now(tensor)
        rethrow()
    end
end

function from_dlpack(
    ::Type{A}, ::Type{M}, o; copy::Bool = false,
) where {T,N,A<:AbstractArray{T,N},M<:MemoryLayout}
    tensor = take_tensor(o)
    try
        info = tensor_info(tensor)
        check_type(T, N, info)
        return arrive_as(A, tensor, info, is_reversed(M), copy)
    catch
        release_now(tensor)
        rethrow()
    end
end

"""
    wrap(o, to_dlpack; layout = nothing, copy = false)
    wrap(Matrix{Float32}, RowMajor, o, to_dlpack; copy = false)

As [`from_dlpack`](@ref), with the capsule that the function `to_dlpack` makes of `o`.
"""
wrap(o, to_dlpack; kwargs...) = from_dlpack(to_dlpack(o); kwargs...)

wrap(::Type{A}, ::Type{M}, o, to_dlpack; copy::Bool = false) where {A<:AbstractArray,M<:MemoryLayout} =
    from_dlpack(A, M, to_dlpack(o); copy = copy)

function take_tensor(o)
    drain_if_pending()
    tensor = Ref{Ptr{Cvoid}}(C_NULL)
    GC.@preserve o check(ccall(
        dlb_from_python[], Cint, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}),
        python_pointer(o), C_NULL, tensor,
    ))
    return tensor[]
end

tensor_info(tensor::Ptr{Cvoid}) =
    unsafe_load(ccall(dlb_tensor_info[], Ptr{Info}, (Ptr{Cvoid},), tensor))

function copy_tensor(tensor::Ptr{Cvoid})
    copied = Ref{Ptr{Cvoid}}(C_NULL)
    check(ccall(dlb_copy[], Cint, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), tensor, copied))
    return copied[]
end

function check_type(::Type{T}, N::Int, info::Info) where {T}
    dtype(T) == info.dtype || throw_type(T, info)
    N == info.rank || throw(ArgumentError("rank: found $(info.rank) axes, wanted $N"))
    return nothing
end

@noinline throw_type(::Type{T}, info::Info) where {T} =
    throw(ArgumentError("dtype: found $(name(info.dtype)), wanted $(name(dtype(T))) for $T"))

@inline dims(::Val{N}, numbers::Ptr{Int64}, reversed::Bool) where {N} =
    ntuple(k -> Int(unsafe_load(numbers, reversed ? N + 1 - k : k)), Val(N))

# Whatever array is right for the tensor.
function arrive(::Type{T}, ::Val{N}, tensor, info, reversed, copy) where {T,N}
    plain = T !== Bool && why_not_plain(Array{T,N}, info, reversed) === nothing
    if info.is_host != 0 && (copy || info.len == 0 || plain)
        return arrive_as(Array{T,N}, tensor, info, reversed, copy)
    end
    return arrive_as(AbstractArray{T,N}, tensor, info, reversed, copy)
end

# Exactly this kind of array, or an error.
function arrive_as(::Type{Array{T,N}}, tensor, info, reversed, copy) where {T,N}
    check_host(info)
    size = dims(Val(N), info.shape, reversed)
    if copy || info.len == 0
        array = Array{T,N}(undef, size)
        copy_elements!(array, info, reversed)
        release_now(tensor)
        return array
    end
    problem = why_not_plain(Array{T,N}, info, reversed)
    problem === nothing || throw(ArgumentError(problem))
    array = unsafe_wrap(Array, Ptr{T}(info.data), size)
    finalizer(_ -> release_later(tensor), root_of(array))
    return array
end

function arrive_as(::Type{A}, tensor, info, reversed, copy) where {T,N,A<:AbstractArray{T,N}}
    if info.device.kind == CUDA_KIND
        return device_array(Val(CUDA_KIND), A, tensor, info, reversed, copy)
    end
    check_host(info)
    StridedTensor{T,N} <: A || return arrive_as_dense(A, tensor, info, reversed, copy)
    if copy
        copied = copy_tensor(tensor)
        release_now(tensor)
        return arrive_as(A, copied, tensor_info(copied), reversed, false)
    end
    return StridedTensor{T,N}(
        Ptr{T}(info.data), dims(Val(N), info.shape, reversed), dims(Val(N), info.strides, reversed),
        info.flags & READ_ONLY != 0, is_aligned(T, info), Root(tensor),
    )
end

function arrive_as_dense(::Type{A}, tensor, info, reversed, copy) where {T,N,A<:AbstractArray{T,N}}
    Array{T,N} <: A || throw(ArgumentError("array: $A is not for memory of $(name(info.device))"))
    return arrive_as(Array{T,N}, tensor, info, reversed, copy)
end

check_host(info::Info) = info.is_host != 0 ? nothing : throw_device(info)

@noinline throw_device(info::Info) = throw(ArgumentError(
    "device: found $(name(info.device)), wanted memory that the host can read",
))

is_aligned(::Type{T}, info::Info) where {T} =
    UInt(info.data) % Base.datatype_alignment(T) == 0

# Why no plain Array may stand for the tensor; nothing if one may.
function why_not_plain(::Type{Array{T,N}}, info::Info, reversed::Bool) where {T,N}
    info.is_host == 0 && return "device: found $(name(info.device)), wanted host memory"
    info.flags & READ_ONLY == 0 ||
        return "access: the memory is read-only; ask for an AbstractArray, or copy = true"
    (reversed ? info.is_row_major : info.is_column_major) == 0 &&
        return "layout: the strides are not those of " * (reversed ? "RowMajor" : "ColMajor") *
               "; ask for an AbstractArray, or copy = true"
    is_aligned(T, info) || return "data: its address is not aligned for $T; copy = true"
    return nothing
end

# Where an array's memory hangs, whatever is made of it by reshape.
@static if VERSION >= v"1.11"
    root_of(array::Array) = array.ref.mem
else
    root_of(array::Array) = array
end

function copy_elements!(array::Array{T,N}, info::Info, reversed::Bool) where {T,N}
    info.len == 0 && return array
    source = Ptr{T}(info.data)
    if T !== Bool && (reversed ? info.is_row_major : info.is_column_major) != 0
        GC.@preserve array unsafe_copyto!(Ptr{UInt8}(pointer(array)), Ptr{UInt8}(source), sizeof(array))
        return array
    end
    strides = dims(Val(N), info.strides, reversed)
    for index in CartesianIndices(array)
        offset = mapreduce(*, +, Tuple(index) .- 1, strides)
        array[index] = read_element(source + offset * sizeof(T), false)
    end
    return array
end

"""
    DLBridge.close(x)

Gives the memory of an imported array back now, rather than when the garbage collector finds it. A
`StridedTensor` refuses to be read afterwards; a plain `Array` cannot, and must not be used any more.
An array whose memory is shared at this moment is not closed: that is an `ArgumentError`.
"""
close(x::StridedTensor) = Base.close(x)
close(x::Array) = (check_not_shared(x); finalize(root_of(x)); drain())
