# Runs all tests, or those of the files and packages named as arguments, and prints their counts for `cargo xtask test`.

using Test
using DLBridge

include("cpython.jl")
include("support.jl")
include("packages.jl")
using .CPython

const WITHOUT_PYTHON = ("memory.jl", "library.jl", "sealed.jl")
const WITH_PYTHON = ("imports.jl", "strided.jl", "shares.jl", "descriptors.jl", "lifetimes.jl", "frameworks.jl")
# Calls with many combinations of types, which take longer to compile than to interpret.
const INTERPRETED = ["strided.jl"]
const PACKAGES = ["PyCall", "PythonCall"]
# In a command, `@__FILE__` is another file.
const FILE = @__FILE__

is_wanted(file) = isempty(ARGS) ? !(file in INTERPRETED || file in PACKAGES) : file in ARGS

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

"Starts the tests of these files in a process of its own; the result waits for it, and tells whether they passed."
function beside(files, flags)
    output = tempname()
    command = `$(Base.julia_cmd()) $flags --startup-file=no $FILE $files`
    separator = Sys.iswindows() ? ';' : ':'
    process = withenv("JULIA_LOAD_PATH" => join(Base.load_path(), separator)) do
        # A file, because this process reads no pipe before its own tests end.
        run(pipeline(ignorestatus(command); stdout = output, stderr = output); wait = false)
    end
    return function ()
        wait(process)
        print(read(output, String))
        rm(output; force = true)
        return success(process)
    end
end

function main()
    others = isempty(ARGS) ? [beside(INTERPRETED, `--compile=min`), beside(PACKAGES, ``)] : []
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
    # Each prints its own count.
    for result in others
        works &= result()
    end
    exit(failed == 0 && works ? 0 : 1)
end

# In processes of their own, since each of these packages starts its own Python.
function run_with_packages()
    wanted = filter(is_wanted, PACKAGES)
    isempty(wanted) && return true
    reason = Packages.prepare()
    if reason !== nothing
        foreach(package -> skip("the tests with $package", reason), wanted)
        return true
    end
    return all(map(Packages.test, wanted))
end

main()
