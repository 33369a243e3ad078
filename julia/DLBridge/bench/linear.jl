# What linear algebra on a read-only tensor costs, next to the same on an `Array`: lines of the operation, microseconds of
# the best of many calls for the array and for the tensor, and their quotient. Run as
# `julia --project=julia/DLBridge julia/DLBridge/bench/linear.jl`, with DLBRIDGE_PYTHON for a Python that has NumPy.

using DLBridge, LinearAlgebra
include(joinpath(@__DIR__, "..", "test", "cpython.jl"))
using .CPython: run_python

function best(work)
    work()
    return minimum(1:50) do _
        started = time_ns()
        work()
        (time_ns() - started) / 1000
    end
end

function compare(name, work, arrays, tensors)
    array, tensor = best(() -> work(arrays...)), best(() -> work(tensors...))
    println(join((name, round(array; digits = 1), round(tensor; digits = 1), round(tensor / array; digits = 2)), '\t'))
end

function main()
    # Those of a busy machine wait for each other.
    BLAS.set_num_threads(1)
    reason = CPython.start()
    reason === nothing || return println("skipped\t", reason)
    run_python("import numpy as np; m = np.random.rand(500, 500); v = np.random.rand(100_000)")
    run_python("m.flags.writeable = v.flags.writeable = False")
    m, v = (CPython.import_of(from_dlpack, code) for code in ("m", "v"))
    M, V = Array(m), Array(v)
    part(A) = view(A, 1:400, 51:450)
    steps(a) = view(a, 1:2:length(a))
    compare("product of views", *, (part(M), part(M)), (part(m), part(m)))
    compare("view times vector", *, (part(M), V[1:400]), (part(m), V[1:400]))
    compare("transposed view times view", (a, b) -> transpose(a) * b, (part(M), part(M)), (part(m), part(m)))
    for (kind, of) in (("", identity), (" of a view with steps", steps))
        compare("dot" * kind, dot, (of(V), of(V)), (of(v), of(v)))
        compare("norm" * kind, norm, (of(V),), (of(v),))
        compare("sum" * kind, sum, (of(V),), (of(v),))
    end
    compare("sum along rows", a -> sum(a; dims = 2), (M,), (m,))
    compare("maximum", maximum, (M,), (m,))
    compare("permutedims", permutedims, (M,), (m,))
    compare("permutedims of a view", permutedims, (part(M),), (part(m),))
    compare("inv", inv, (M,), (m,))
end

main()
