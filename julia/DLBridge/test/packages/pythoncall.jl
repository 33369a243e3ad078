# DLBridge with PythonCall.

const GLOBALS = pyimport("__main__").__dict__
run_python(code) = pyexec(code, GLOBALS)
py(code) = pyeval(Py, code, GLOBALS)
value(T, code) = pyconvert(T, py(code))
const Object = Py
const BRIDGE_TESTS = "with_pythoncall.jl"
const BRIDGE_UUID = "6099a3de-0909-46bc-b1f4-468b9a2dfc0d"
set(name, o) = (GLOBALS[name] = o; nothing)
