# All tests, or those of the files and packages named as arguments, and lines that count them for `cargo
# xtask test`.
# Tests themselves do not belong here.

using Test
using DLBridge

include("cpython.jl")
include("counts.jl")
include("packages.jl")
using .CPython

const SKIPPED = String[]

"Notes what cannot be tested here, and why."
skip(what, reason) = (push!(SKIPPED, what); println("skipped: ", what, ": ", reason))

"Runs Julia's collector and all that waits for it."
function settle()
    for _ in 1:3
        GC.gc()
        sleep(0.01)
        DLBridge.drain()
    end
end

const WITHOUT_PYTHON = ("layouts.jl", "memory.jl", "library.jl", "sealed.jl")
const WITH_PYTHON = (
    "imports.jl", "typed.jl", "copies.jl", "linear.jl", "shares.jl", "descriptors.jl", "lifetimes.jl", "threads.jl",
    "frameworks.jl", "cuda.jl",
)

is_wanted(file) = isempty(ARGS) || file in ARGS

function run_all(python_missing)
    return @testset "DLBridge" begin
        for file in filter(is_wanted, WITHOUT_PYTHON)
            @testset "$file" begin include(file) end
        end
        for file in filter(is_wanted, WITH_PYTHON)
            if python_missing !== nothing
                skip(file, python_missing)
            else
                @testset "$file" begin include(file) end
            end
        end
    end
end

function main()
    missing_python = CPython.start()
    if missing_python === nothing && !CPython.has("numpy")
        missing_python = "NumPy is not installed"
    end
    if missing_python === nothing
        DLBridge.register_object_type(PyRef)
        run_python("import numpy as np")
    end
    passed, failed = try
        count_passed(run_all(missing_python)), 0
    catch error
        error isa Test.TestSetException || rethrow()
        error.pass, error.fail + error.error
    end
    works = run_with_packages()
    println("julia: $passed passed, $failed failed, $(length(SKIPPED)) skipped")
    exit(failed == 0 && works ? 0 : 1)
end

# In processes of their own, since each of these packages starts its own Python.
function run_with_packages()
    wanted = filter(is_wanted, ["PyCall", "PythonCall"])
    isempty(wanted) && return true
    reason = Packages.prepare()
    if reason !== nothing
        foreach(package -> skip("the tests with $package", reason), wanted)
        return true
    end
    return all(map(Packages.test, wanted))
end

main()
