# Tests with the real PyCall or PythonCall, which the argument names, in a project that has it, DLBridge and Test.
# The other tests have a Python of their own (see ../cpython.jl).

using Test
using DLBridge
using DLBridge: share, wrap, StridedTensor, is_readonly

include("../support.jl")

const BRIDGE = Symbol(ARGS[1])
@eval using $BRIDGE

# What the tests call of either package.
if BRIDGE === :PyCall
    const GLOBALS = pyimport("__main__")."__dict__"
    const EXEC = pybuiltin("exec")
    run_python(code) = (pycall(EXEC, PyObject, code, GLOBALS); nothing)
    py(code) = pycall(pybuiltin("eval"), PyObject, code, GLOBALS)
    value(T, code) = convert(T, py(code))
    const Object = PyObject
    const BRIDGE_UUID = "438e738f-606a-5dbb-bf0a-cddfbfd45ab0"
    set(name, o) = (pycall(GLOBALS.__setitem__, PyObject, name, o); nothing)
else
    const GLOBALS = pyimport("__main__").__dict__
    run_python(code) = pyexec(code, GLOBALS)
    py(code) = pyeval(Py, code, GLOBALS)
    value(T, code) = pyconvert(T, py(code))
    const Object = Py
    const BRIDGE_UUID = "6099a3de-0909-46bc-b1f4-468b9a2dfc0d"
    set(name, o) = (GLOBALS[name] = o; nothing)
end
const OWN = BRIDGE === :PyCall ? "pycall.jl" : "pythoncall.jl"

function run_all()
    @testset "DLBridge with $BRIDGE" begin
        @testset "$file" for file in ("common.jl", OWN, "dlpack_jl.jl", "guide.jl")
            include(file)
        end
    end
end

passed, failed = try
    count_passed(run_all()), 0
catch error
    error isa Test.TestSetException || rethrow()
    error.pass, error.fail + error.error
end
println("julia: $passed passed, $failed failed, $(length(SKIPPED)) skipped")
exit(failed == 0 ? 0 : 1)
