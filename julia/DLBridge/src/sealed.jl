# From sealed memory of another process to Julia arrays. The arrays keep the memory after the file is closed.

"""
    from_sealed(descriptor; private = false, layout = nothing, copy = false, write = true)

The arrays in a sealed memory file, by their names (Linux): a `Dict`. `descriptor` is its number, or an
`RawFD`, and stays the caller's to close. It may come from any process; anything but a sealed file of
tensors is an `ArgumentError`.

Nothing is copied. The arrays are read-only. With `private = true` they are writable: the first write to a
page copies it, and the sealed values do not change. The other keywords are those of [`from_dlpack`](@ref).
"""
function from_sealed(
    descriptor; private::Bool = false, layout = nothing, copy::Bool = false, write::Bool = true,
)
    sealed = Ref{Ptr{Cvoid}}(C_NULL)
    number = descriptor isa RawFD ? reinterpret(Cint, descriptor) : Cint(descriptor)
    check(ccall(dlb_sealed_open[], Cint, (Cint, Ptr{Ptr{Cvoid}}), number, sealed))
    arrays = Dict{String,AbstractArray}()
    try
        for index in 1:ccall(dlb_sealed_count[], Csize_t, (Ptr{Cvoid},), sealed[])
            name = ccall(dlb_sealed_name[], Cstring, (Ptr{Cvoid}, Csize_t), sealed[], index - 1)
            tensor = Ref{Ptr{Cvoid}}(C_NULL)
            check(ccall(
                (private ? dlb_sealed_private : dlb_sealed_tensor)[], Cint,
                (Ptr{Cvoid}, Cstring, Ptr{Ptr{Cvoid}}), sealed[], name, tensor,
            ))
            arrays[unsafe_string(name)] = arrive(tensor[], layout, copy, write, false)
        end
    finally
        ccall(dlb_sealed_close[], Cvoid, (Ptr{Cvoid},), sealed[])
    end
    return arrays
end
