# Tests with the real PyCall or PythonCall, which the argument names, in a project that has it, DLBridge and Test.
# The other tests have a Python of their own (see ../cpython.jl).

using Test
using DLBridge
using DLBridge: share, wrap, StridedTensor, is_readonly

const BRIDGE = Symbol(ARGS[1])
@eval using $BRIDGE

const SKIPPED = String[]
skip(what, reason) = (push!(SKIPPED, what); println("skipped: ", what, ": ", reason))

"Runs Julia's garbage collector, finalizers and queued releases."
function settle()
    for _ in 1:3
        GC.gc()
        sleep(0.01)
        DLBridge.drain()
    end
end

include("../counts.jl")
include(BRIDGE === :PyCall ? "pycall.jl" : "pythoncall.jl")

function run_all()
    @testset "DLBridge with $BRIDGE" begin
        @testset "$file" for file in (BRIDGE_TESTS, "elements.jl", "dlpack_jl.jl", "precompile.jl", "guide.jl")
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
