# PythonCall's objects as DLBridge wants them.
# Anything that does not need PythonCall's names does not belong here.
module DLBridgePythonCallExt

@static if isdefined(Base, :get_extension)
    import DLBridge
    import PythonCall
else
    import ..DLBridge
    import ..PythonCall
end

using .PythonCall: Py

DLBridge.python_pointer(o::Py) = Ptr{Cvoid}(PythonCall.getptr(o))

# `pynew` takes the reference over.
DLBridge.python_object(::Type{Py}, pointer::Ptr{Cvoid}) =
    PythonCall.pynew(PythonCall.C.PyPtr(pointer))

__init__() = DLBridge.register_object_type(Py)

end
