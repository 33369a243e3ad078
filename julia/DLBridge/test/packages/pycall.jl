# DLBridge with PyCall.

const GLOBALS = pyimport("__main__")."__dict__"
const EXEC = pybuiltin("exec")
run_python(code) = (pycall(EXEC, PyObject, code, GLOBALS); nothing)
py(code) = pycall(pybuiltin("eval"), PyObject, code, GLOBALS)
value(T, code) = convert(T, py(code))
const Object = PyObject
const BRIDGE_TESTS = "with_pycall.jl"
const BRIDGE_UUID = "438e738f-606a-5dbb-bf0a-cddfbfd45ab0"
set(name, o) = (pycall(GLOBALS.__setitem__, PyObject, name, o); nothing)
