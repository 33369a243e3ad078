# Export: from a Julia array to Python and C.
# Invariant: the entry that keeps an array alive is removed once: by its token, or here if the export fails.

"""
    share(A, from_dlpack; layout = RowMajor, readonly = false)

Calls the Python function `from_dlpack` with an exporter of `A`, and returns its array: over the same memory, which it
keeps alive. Its axes are the dimensions of `A` reversed; with `layout = ColMajor`, as they are. Views,
transposed, permuted and reshaped arrays are shared with their strides. Read-only arrays stay so.

Where more than one Python package is loaded and `from_dlpack` is a Julia function, name the type
that it takes: `share(A, PyObject, from_dlpack)`.

    share(A; layout = RowMajor, readonly = false, versioned = true)

A capsule, for one consumer: versioned (DLPack 1.x), or with `versioned = false` legacy, which has no
read-only flag.

On Julia up to 1.10, a `Vector` that was shared can never grow or shrink again. From 1.11 on it can, and its
elements then move: Python keeps the old memory.
"""
share(A::AbstractArray, from_dlpack; kwargs...) =
    share(A, object_type(from_dlpack), from_dlpack; kwargs...)

function share(
    A::AbstractArray, ::Type{P}, from_dlpack; layout = RowMajor, readonly::Bool = false,
) where {P}
    object = python_object(P, shared_object(A, is_reversed(layout), readonly))
    # A Julia function may keep the object; a Python function has references of its own.
    from_dlpack isa P || return python_call(P, from_dlpack, object)
    try
        return python_call(P, from_dlpack, object)
    finally
        release_object(object)
    end
end

share(A::AbstractArray; kwargs...) = share(A, only_object_type(); kwargs...)

share(
    A::AbstractArray, ::Type{P}; layout = RowMajor, readonly::Bool = false, versioned::Bool = true,
) where {P} = python_object(P, shared_capsule(A, is_reversed(layout), readonly, versioned))

# A new reference to a Python object over the memory of A.
function shared_object(A::AbstractArray, reversed::Bool, readonly::Bool)
    return with_export(A, reversed, readonly) do description
        object = Ref{Ptr{Cvoid}}(C_NULL)
        check(ccall(
            dlb_export_python[], Cint, (Ref{Description}, Ptr{Ptr{Cvoid}}), description, object,
        ))
        object[]
    end
end

function shared_capsule(A::AbstractArray, reversed::Bool, readonly::Bool, versioned::Bool)
    tensor, capsule = exported(A, reversed, readonly), Ref{Ptr{Cvoid}}(C_NULL)
    status = ccall(
        dlb_into_capsule[], Cint, (Ptr{Cvoid}, Cint, Ptr{Ptr{Cvoid}}), tensor, versioned, capsule,
    )
    check_consumed(status, tensor)
    return capsule[]
end

# Calls that fail consume nothing: the tensor is released here.
check_consumed(status::Cint, tensor) =
    status == 0 ? nothing : try throw_failure(status) finally release_now(tensor) end

"""
    DLBridge.unsafe_share(A; layout = RowMajor, readonly = false)

A `DLManagedTensorVersioned *` over the memory of `A`, for C code, which calls its deleter once, on
any thread. `A` is kept until then.
"""
function unsafe_share(A::AbstractArray; layout = RowMajor, readonly::Bool = false)
    tensor, managed = exported(A, is_reversed(layout), readonly), Ref{Ptr{Cvoid}}(C_NULL)
    status = ccall(dlb_into_versioned[], Cint, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), tensor, managed)
    check_consumed(status, tensor)
    return managed[]
end

function exported(A::AbstractArray, reversed::Bool, readonly::Bool)
    return with_export(A, reversed, readonly) do description
        tensor = Ref{Ptr{Cvoid}}(C_NULL)
        check(ccall(dlb_export[], Cint, (Ref{Description}, Ptr{Ptr{Cvoid}}), description, tensor))
        tensor[]
    end
end

# Calls `use` with a description of the memory, which `use` must export: the library returns the token
# once the memory is no longer used. If `use` fails, it is returned here.
@inline function with_export(use, A::AbstractArray{T,N}, reversed::Bool, readonly::Bool) where {T,N}
    is_loaded() || load_library()
    drain_if_pending()
    element = dtype(T)
    start, steps = memory(A)
    device = device_of(A)
    flags = readonly || is_readonly(A) ? READ_ONLY : UInt64(0)
    lists = (map(Int64, size(A)), map(Int64, steps))
    numbers = Ref(reversed ? map(reverse, lists) : lists)
    token = keep!(A)
    try
        GC.@preserve A numbers begin
            shape = Ptr{Int64}(Base.unsafe_convert(Ptr{Cvoid}, numbers))
            use(Description(
                Ptr{Cvoid}(UInt(start)), shape, shape + N * sizeof(Int64), flags, device,
                element, N, Ptr{Cvoid}(UInt(token)), C_NULL, QUEUE[],
            ))
        end
    catch
        forget!(token)
        rethrow()
    end
end

# A view of device memory is device memory.
device_of(A::AbstractArray) = parent(A) === A ? HOST : device_of(parent(A))
