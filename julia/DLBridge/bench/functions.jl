# The time of functions of `Base`, `Statistics` and `LinearAlgebra` on a read-only contiguous tensor, next to an `Array` over the same memory:
# lines of the function, microseconds of the best of many calls for the array and for the tensor, and their quotient; then
# how many are within 1.25. Run as `julia --project=julia/DLBridge julia/DLBridge/bench/functions.jl`, with
# DLBRIDGE_PYTHON for a Python that has NumPy.

using DLBridge, LinearAlgebra
include(joinpath(@__DIR__, "..", "test", "cpython.jl"))
using .CPython: run_python

function loop(a)
    total = zero(eltype(a))
    for i in eachindex(a)
        total += a[i]
    end
    return total
end

function each(a)
    total = zero(eltype(a))
    for value in a
        total += value
    end
    return total
end

function rows_and_columns(a)
    total = zero(eltype(a))
    for j in axes(a, 2), i in axes(a, 1)
        total += @inbounds a[i, j]
    end
    return total
end

# Functions of a vector, and of a matrix of 300 x 400.
const VECTORS = [
    "sum" => sum, "prod" => prod, "maximum" => maximum, "minimum" => minimum, "extrema" => extrema, "sum(abs2, v)" => v -> sum(abs2, v),
    "mapreduce" => v -> mapreduce(x -> x + 1, +, v), "reduce" => v -> reduce(+, v), "foldl" => v -> foldl(+, v), "foldr" => v -> foldr(+, v),
    "count" => v -> count(x -> x > 0.5, v), "any" => v -> any(x -> x > 2, v), "all" => v -> all(x -> x < 2, v), "in" => v -> 2.0 in v,
    "loop over v[i]" => loop, "loop over values" => each, "map" => v -> map(x -> 2x, v), "map of two" => v -> map(+, v, v),
    "filter" => v -> filter(>(0.5), v), "findall" => v -> findall(>(0.5), v), "findfirst" => v -> findfirst(x -> x > 2, v), "findlast" => v -> findlast(x -> x > 2, v),
    "findmax" => findmax, "findmin" => findmin, "argmax" => argmax, "argmin" => argmin,
    "v + v" => v -> v + v, "v - v" => v -> v - v, "2v" => v -> 2v, "v / 2" => v -> v / 2, "-v" => -, "v .+ 1" => v -> v .+ 1, "v .* v" => v -> v .* v,
    "sqrt.(v)" => v -> sqrt.(v), "v .> 0.5" => v -> v .> 0.5, "2 .* v .+ v .^ 2" => v -> 2 .* v .+ v .^ 2,
    "Array" => Array, "copy" => copy, "collect" => collect, "copyto!" => v -> copyto!(Vector{Float64}(undef, length(v)), v), "Vector{Float32}" => Vector{Float32},
    "v[1:1000]" => v -> v[1:1000], "v[:]" => v -> v[:], "v[1:2:end]" => v -> v[1:2:end], "reverse" => reverse, "cumsum" => cumsum, "cumprod" => cumprod, "accumulate" => v -> accumulate(max, v),
    "diff" => diff, "sort" => sort, "sortperm" => sortperm, "issorted" => issorted, "unique" => v -> unique(v[1:1000]), "v == v" => v -> v == copy(v), "isapprox" => v -> isapprox(v, v),
    "vcat" => v -> vcat(v, v), "hcat" => v -> hcat(v, v), "repeat" => v -> repeat(v, 2), "circshift" => v -> circshift(v, 3), "zip" => v -> sum(x * y for (x, y) in zip(v, v)),
    "generator" => v -> sum(2x for x in v), "comprehension" => v -> [2x for x in v], "dot" => v -> dot(v, v), "norm" => norm, "norm 1" => v -> norm(v, 1), "similar" => v -> similar(v), "enumerate" => v -> sum(i * x for (i, x) in enumerate(v)),
    "foreach" => v -> (total = Ref(0.0); foreach(x -> total[] += x, v); total[]), "hash" => v -> hash(v), "isempty" => isempty, "view" => v -> sum(view(v, 1:1000)),
]
const MATRICES = [
    "m * m'" => m -> m * m', "m * v" => m -> m * ones(size(m, 2)), "transpose copy" => m -> copy(transpose(m)), "permutedims" => permutedims,
    "sum of rows" => m -> sum(m; dims = 2), "sum of columns" => m -> sum(m; dims = 1), "maximum of rows" => m -> maximum(m; dims = 2),
    "loop over m[i, j]" => rows_and_columns, "m .+ row" => m -> m .+ ones(1, size(m, 2)), "m[:, 1:100]" => m -> m[:, 1:100], "m[2, :]" => m -> m[2, :], "mapslices" => m -> mapslices(sum, m; dims = 1),
    "reshape" => m -> sum(reshape(m, :)), "vec" => m -> sum(vec(m)), "rotl90" => rotl90, "any by axis" => m -> any(m .> 2; dims = 1),
]
# Row-major memory in Python's order of axes, which a `Matrix` of the same values does not have.
const ROW_MAJOR = ["sum" => sum, "norm" => norm, "dot" => m -> dot(m, m), "maximum" => maximum, "count" => m -> count(x -> x > 0.5, m)]

# Keeps results, so that no work is left out.
const RESULT = Ref{Any}()

function microseconds(work, x)
    started = time_ns()
    RESULT[] = work(x)
    return (time_ns() - started) / 1000
end

# Of ten, since the first ones get memory that the other array's results have left.
microseconds_of_ten(work, x) = minimum(microseconds(work, x) for _ in 1:10)

# The best of many pairs, since other processes slow down some of them.
function best(work, array, tensor)
    times, started = Tuple{Float64,Float64}[], time_ns()
    while length(times) < 4 || time_ns() - started < 200_000_000
        push!(times, (microseconds_of_ten(work, array), microseconds_of_ten(work, tensor)))
    end
    return minimum(map(first, times)), minimum(map(last, times))
end

function compare(functions, array, tensor)
    return map(functions) do (name, work)
        times = best(work, array, tensor)
        ratio = times[2] / max(times[1], 0.1)
        println(join((name, round.(times; digits = 1)..., round(ratio; digits = 2)), '\t'))
        ratio
    end
end

function main()
    BLAS.set_num_threads(1)
    reason = CPython.start()
    reason === nothing || return println("skipped\t", reason)
    run_python("import numpy as np; v = np.random.rand(100_000); m = np.random.rand(400, 300)")
    run_python("v.flags.writeable = m.flags.writeable = False")
    v, m = (CPython.import_of(from_dlpack, code) for code in ("v", "m"))
    # Over the same memory: NumPy's alignment alone makes a copy 1.5 times slower than Julia's does.
    plain = (CPython.import_of(o -> from_dlpack(o; write = false), code)::Array for code in ("v", "m"))
    ratios = mapreduce(compare, vcat, (VECTORS, MATRICES), plain, (v, m))
    println("within 1.25\t", count(<=(1.25), ratios), " of ", length(ratios))
    println("row-major, in Python's order of axes:")
    r = CPython.import_of(o -> from_dlpack(o; layout = ColMajor), "m")
    compare(ROW_MAJOR, Array(r), r)
end

main()
