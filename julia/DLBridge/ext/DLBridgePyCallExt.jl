# The functions of src/bridges.jl for PyCall's objects.
module DLBridgePyCallExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import PyCall
else
    import ..DLBridge
    import ..PyCall
end

using .PyCall: PyObject, PyPtr

DLBridge.python_pointer(o::PyObject) = Ptr{Cvoid}(PyPtr(o))

# The constructor steals the reference.
DLBridge.python_object(::Type{PyObject}, pointer::Ptr{Cvoid}) = PyObject(PyPtr(pointer))

DLBridge.release_object(o::PyObject) = (PyCall.pydecref(o); nothing)

# Called as `f(object)`, PyCall would make a Julia copy of a NumPy array, and a pointer of a capsule.
DLBridge.python_call(::Type{PyObject}, f::PyObject, object) = PyCall.pycall(f, PyObject, object)

function __init__()
    DLBridge.register_object_type(PyObject)
    # src/startup.jl of PyCall 1.96: opened with global names elsewhere. No test here runs this.
    Sys.iswindows() && DLBridge.use_python(DLBridge.Libdl.dlopen(PyCall.libpython))
    return nothing
end

end
