# Import: from a Python object to a Julia array over its memory.
# Invariant: an imported tensor is owned by exactly one array, or released before an error is thrown.

"""
    from_dlpack(o; layout = nothing, copy = false, write = true, assume_writable = false)

A Julia array over the memory of the Python array `o`: an object with `__dlpack__`, or a capsule.

A row-major tensor arrives with its dimensions reversed, a column-major one as it is; `layout =
RowMajor` or `ColMajor` makes the choice explicit. The array is a plain `Array` where that is right
(host memory, writable, contiguous, aligned, and the bytes of `Bool`s are 0 or 1), else a
[`StridedTensor`](@ref); memory of CUDA, managed memory included, is a `CuArray`. `copy = true` makes an `Array`
with memory of its own. `write = false` is your promise not to write: read-only memory then counts as writable,
and may be a plain `Array`.

A legacy capsule has no flag for read-only memory, so its memory counts as read-only. `assume_writable = true` says
that you know the producer, and that it permits writing, as older releases of PyTorch do. Memory that a producer
flags as read-only stays read-only. Writing to an array of JAX or TensorFlow is undefined behaviour.

    from_dlpack(Matrix{Float32}, RowMajor, o; copy = false, write = true, assume_writable = false)

The same for a type that is known: a tensor of another type, ndim or layout is an `ArgumentError`,
and the result's type is inferred. For `AbstractMatrix{Float32}` it is always a `StridedTensor`.
"""
function from_dlpack(
    o; layout = nothing, copy::Bool = false, write::Bool = true, assume_writable::Bool = false,
)
    return arrive(take_tensor(o), layout, copy, write, assume_writable)
end

# The caller's options: reverse the axes, copy, expect writable memory.
struct Request
    reversed::Bool
    copy::Bool
    write::Bool
end

"""
    DLBridge.unsafe_from_dlpack(pointer; layout = nothing, copy = false, write = true)

As [`from_dlpack`](@ref), of a `DLManagedTensorVersioned *` that C code exports. The pointer must be
valid, and must not be used again.
"""
function unsafe_from_dlpack(
    pointer::Ptr{Cvoid}; layout = nothing, copy::Bool = false, write::Bool = true,
)
    tensor = Ref{Ptr{Cvoid}}(C_NULL)
    check(ccall(dlb_from_versioned[], Cint, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), pointer, tensor))
    return arrive(tensor[], layout, copy, write, false)
end

function arrive(tensor::Ptr{Cvoid}, layout, copy::Bool, write::Bool, assume_writable::Bool)
    try
        info = tensor_info(tensor, assume_writable)
        count_import(info)
        reversed = layout === nothing ? is_reversed(info) : is_reversed(layout)
        T = julia_type(info.dtype)
        return arrive(T, Val(Int(info.ndim)), tensor, info, Request(reversed, copy, write))
    catch
        release_now(tensor)
        rethrow()
    end
end

function from_dlpack(
    ::Type{A}, ::Type{M}, o; copy::Bool = false, write::Bool = true, assume_writable::Bool = false,
) where {T,N,A<:AbstractArray{T,N},M<:MemoryLayout}
    tensor = take_tensor(o)
    try
        info = tensor_info(tensor, assume_writable)
        count_import(info)
        check_type(T, N, info)
        return arrive_as(A, tensor, info, Request(is_reversed(M), copy, write))
    catch
        release_now(tensor)
        rethrow()
    end
end

"""
    wrap(o, to_dlpack; layout = nothing, copy = false, write = true, assume_writable = false)
    wrap(Matrix{Float32}, RowMajor, o, to_dlpack; copy = false, write = true, assume_writable = false)

As [`from_dlpack`](@ref), with the capsule that the Python or Julia function `to_dlpack` makes of `o`.
"""
wrap(o, to_dlpack; kwargs...) = from_dlpack(python_call(typeof(o), to_dlpack, o); kwargs...)

wrap(::Type{A}, ::Type{M}, o, to_dlpack; kwargs...) where {A<:AbstractArray,M<:MemoryLayout} =
    from_dlpack(A, M, python_call(typeof(o), to_dlpack, o); kwargs...)

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

function tensor_info(tensor::Ptr{Cvoid}, assume_writable::Bool)
    info = tensor_info(tensor)
    assume_writable && is_legacy_read_only(tensor) || return info
    return with_flags(info, info.flags & ~READ_ONLY)
end

is_legacy_read_only(tensor) = ccall(dlb_is_legacy_read_only[], UInt8, (Ptr{Cvoid},), tensor) != 0

# `assume_writable` changes the flags of Julia's array only; the tensor keeps its own.
with_flags(info::Info, flags::UInt64) =
    Info((name === :flags ? flags : getfield(info, name) for name in fieldnames(Info))...)

# Julia's collector does not know the size of foreign memory. So DLBridge starts a collection of young objects, which
# takes about 0.1 ms, whenever this many bytes have arrived.
const COLLECT_AT = Ref(2^28)
const ARRIVED = Threads.Atomic{Int}(0)

function count_import(info::Info)
    bytes = Int(info.len) * (Int(info.dtype.bits) * Int(info.dtype.lanes)) >> 3
    Threads.atomic_add!(ARRIVED, bytes) + bytes < COLLECT_AT[] || collect_young()
    return nothing
end

@noinline function collect_young()
    ARRIVED[] = 0
    GC.gc(false)
    drain()
    return nothing
end

function copy_tensor(tensor::Ptr{Cvoid})
    copied = Ref{Ptr{Cvoid}}(C_NULL)
    check(ccall(dlb_copy[], Cint, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), tensor, copied))
    return copied[]
end

function check_type(::Type{T}, N::Int, info::Info) where {T}
    dtype(T) == info.dtype || throw_type(T, info)
    N == info.ndim || throw(ArgumentError("ndim: expected $N, found $(info.ndim)"))
    return nothing
end

@noinline throw_type(::Type{T}, info::Info) where {T} =
    throw(ArgumentError("dtype: expected $(name(dtype(T))) for $T, found $(name(info.dtype))"))

@inline dims(::Val{N}, numbers::Ptr{Int64}, reversed::Bool) where {N} =
    ntuple(k -> Int(unsafe_load(numbers, reversed ? N + 1 - k : k)), Val(N))

# Chooses the array type for the tensor.
function arrive(::Type{T}, ::Val{N}, tensor, info, request) where {T,N}
    if info.is_host != 0 && !is_for_device(info) && (
        request.copy || info.len == 0 || why_not_plain(Array{T,N}, tensor, info, request) === nothing
    )
        return arrive_as(Array{T,N}, tensor, info, request)
    end
    return arrive_as(AbstractArray{T,N}, tensor, info, request)
end

# Makes an array of this type, or throws.
function arrive_as(::Type{Array{T,N}}, tensor, info, request) where {T,N}
    check_host(info)
    size = dims(Val(N), info.shape, request.reversed)
    if request.copy || info.len == 0
        array = Array{T,N}(undef, size)
        copy_elements!(array, info, request.reversed)
        release_now(tensor)
        return array
    end
    problem = why_not_plain(Array{T,N}, tensor, info, request)
    problem === nothing || throw(ArgumentError(problem))
    array = unsafe_wrap(Array, Ptr{T}(info.data), size)
    own!(array, tensor)
    return array
end

function arrive_as(::Type{A}, tensor, info, request) where {T,N,A<:AbstractArray{T,N}}
    is_for_device(info) && return device_array(Val(CUDA_KIND), A, tensor, info, request)
    check_host(info)
    StridedTensor{T,N} <: A || return arrive_as_dense(A, tensor, info, request)
    if request.copy
        copied = copy_tensor(tensor)
        release_now(tensor)
        return arrive_as(A, copied, tensor_info(copied), Request(request.reversed, false, true))
    end
    reversed = request.reversed
    return StridedTensor{T,N}(
        Ptr{T}(info.data), dims(Val(N), info.shape, reversed), dims(Val(N), info.strides, reversed),
        info.flags & READ_ONLY != 0, is_aligned(T, info), finalizer(close_root, Root(tensor)),
    )
end

function arrive_as_dense(::Type{A}, tensor, info, request) where {T,N,A<:AbstractArray{T,N}}
    Array{T,N} <: A || throw(ArgumentError("array: $A is not for memory of $(name(info.device))"))
    return arrive_as(Array{T,N}, tensor, info, request)
end

check_host(info::Info) = info.is_host != 0 ? nothing : throw_device(info)

@noinline throw_device(info::Info) = throw(ArgumentError(
    "device: expected memory that the host can read, found $(name(info.device))",
))

is_aligned(::Type{T}, info::Info) where {T} =
    UInt(info.data) % Base.datatype_alignment(T) == 0

# Why no plain Array may stand for the tensor; nothing if one may.
function why_not_plain(::Type{Array{T,N}}, tensor, info::Info, request::Request) where {T,N}
    reversed = request.reversed
    info.is_host == 0 && return "device: expected host memory, found $(name(info.device))"
    request.write && info.flags & READ_ONLY != 0 && return why_read_only(tensor)
    (reversed ? info.is_row_major : info.is_column_major) == 0 &&
        return "layout: the strides are not those of " * (reversed ? "RowMajor" : "ColMajor") *
               "; ask for an AbstractArray, or copy = true"
    is_aligned(T, info) || return "data: its address is not aligned for $T; copy = true"
    T === Bool && !are_truth_values(info) &&
        return "data: expected the bytes 0 and 1 for Bool, found others; ask for an AbstractArray, or copy = true"
    return nothing
end

why_read_only(tensor) = is_legacy_read_only(tensor) ?
    "access: expected writable memory, found a legacy capsule, which cannot say that its memory is writable; " *
    "if its producer permits writing, assume_writable = true, else ask for an AbstractArray, write = false or copy = true" :
    "access: expected writable memory, found read-only memory; ask for an AbstractArray, write = false or copy = true"

# Julia's compiler relies on a Bool's byte being 0 or 1. Any byte but 0 is true for NumPy, whose views can set others.
function are_truth_values(info::Info)
    bytes, seen = Ptr{UInt8}(info.data), 0x00
    for index in 1:info.len
        seen |= unsafe_load(bytes, index)
    end
    return seen <= 0x01
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
