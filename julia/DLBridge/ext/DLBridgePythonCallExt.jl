# The functions of src/bridges.jl for PythonCall's objects.
module DLBridgePythonCallExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import PythonCall
else
    import ..DLBridge
    import ..PythonCall
end

using .PythonCall: Py, PyArray, PyIterable

# Of a PyArray or PyIterable, the object that it wraps.
DLBridge.python_pointer(o::Union{Py,PyArray,PyIterable}) = Ptr{Cvoid}(PythonCall.getptr(o))

# `pynew` steals the reference.
DLBridge.python_object(::Type{Py}, pointer::Ptr{Cvoid}) =
    PythonCall.pynew(PythonCall.C.PyPtr(pointer))

DLBridge.release_object(o::Py) = PythonCall.pydel!(o)

# A Julia array over Python's memory, which is shared again like any other.
function DLBridge.memory(A::PyArray{T,N,M,L,R}) where {T,N,M,L,R}
    T === R && isbitstype(T) || DLBridge.throw_no_memory(A)
    return (Ptr{Cvoid}(Base.unsafe_convert(Ptr{T}, A)), strides(A))
end

DLBridge.is_readonly(::PyArray{T,N,M}) where {T,N,M} = !M

function __init__()
    DLBridge.register_object_type(Py)
    DLBridge.use_python(PythonCall.C.CTX.lib_ptr)
    return nothing
end

end
