# A stand-in for PythonCall: the names that DLBridge uses.
module PythonCall

module C
struct PyObject end
const PyPtr = Ptr{PyObject}
end

struct Py
    pointer::C.PyPtr
end

pynew(pointer::C.PyPtr) = Py(pointer)
getptr(o::Py) = getfield(o, :pointer)

end
