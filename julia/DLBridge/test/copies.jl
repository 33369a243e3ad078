# Copies of strided tensors, assignments between overlapping ones, products.

using DLBridge: StridedTensor, is_readonly
using LinearAlgebra
using Serialization

"Copies an imported array, drops the original and all that it referred to, and reads the copy."
function outlives(code, make, copy)
    holder = Any[import_and_copy(code, make, copy)]
    run_python("junk = [np.full(1000, 7.0) for _ in range(100)]")
    settle()
    return collect(holder[1])
end

@noinline function import_and_copy(code, make, copy)
    x = CPython.import_of(from_dlpack, code)
    y = copy(make(x))
    x isa StridedTensor && close(x)
    return y
end

function through_a_stream(x)
    stream = IOBuffer()
    serialize(stream, x)
    return deserialize(seekstart(stream))
end

@testset "$(nameof(copy)) of $name outlives the original" for copy in (deepcopy, Base.copy, through_a_stream),
    (name, make, expected) in (
        ("a tensor", identity, 999.0:-1:0), ("a view", x -> view(x, 3:7), 997.0:-1:993),
        ("a reshape", x -> reshape(x, 10, 100), reshape(collect(999.0:-1:0), 10, 100)),
        ("a reinterpretation", x -> reinterpret(UInt64, x), reinterpret(UInt64, collect(999.0:-1:0))),
        ("a field", x -> (x = x, same = x)[:x], 999.0:-1:0),
    )
    @test outlives("np.arange(1000.0)[::-1]", make, copy) == expected
end

@testset "deep copies are writable, of one tensor one, and of a view apart" begin
    x = CPython.import_of(from_dlpack, "np.broadcast_to(np.arange(3.0), (2, 3))")
    first, same, part = deepcopy((x, x, view(x, 1:2, 2)))
    @test first isa StridedTensor{Float64,2} && !is_readonly(first) && !is_readonly(part)
    first[1, 2] = 9
    @test same == [0 9 2; 0 1 2] && part == [1, 1]
    @test x == [0 1 2; 0 1 2]
    close(x)
    @test isopen(first)
    @test_throws ArgumentError deepcopy(x)
    @test_throws ArgumentError copy(x)
    close(first)
    @test !isopen(same) && isopen(part)
end

@testset "overlapping assignments" begin
    run_python("a = np.arange(6.0)[::-1].copy()[::-1]")
    x = CPython.import_of(from_dlpack, "a")
    @test x isa StridedTensor{Float64,1}
    @views x[2:5] .= x[1:4]
    @test x == [0, 0, 1, 2, 3, 5]
    x[1:4] = view(x, 3:6)
    @test x == [1, 2, 3, 5, 3, 5]
    copyto!(view(x, 2:6), view(x, 1:5))
    @test x == [1, 1, 2, 3, 5, 3]
    x .= reverse(x) .+ view(x, 6:-1:1)
    @test x == 2 .* [3, 5, 3, 2, 1, 1]
end

# Julia compares the addresses at which arrays start, which differ here.
@testset "imports of one memory overlap, also as a $name" for (name, wrap) in (
    ("tensor", identity), ("view", x -> view(x, :, 3:-1:1)), ("transpose", transpose), ("adjoint", adjoint),
    ("permutation", x -> PermutedDimsArray(x, (2, 1))), ("reshape", x -> reshape(x, 3, 3)),
)
    run_python("m = np.arange(9.0).reshape(3, 3)")
    x = CPython.import_of(from_dlpack, "m")
    y = CPython.import_of(from_dlpack, "m[::-1, ::-1]")
    @test x isa Matrix && y isa StridedTensor
    expected = collect(wrap(y))
    x .= wrap(y)
    @test x == expected
    expected = collect(x)
    y .= x
    @test y == expected
    run_python("m = np.arange(9.0).reshape(3, 3)")
    z = CPython.import_of(o -> from_dlpack(o; layout = ColMajor), "m")
    w = CPython.import_of(o -> from_dlpack(o; layout = RowMajor), "m")
    @test z isa StridedTensor
    expected = collect(wrap(z))
    w .= wrap(z)
    @test w == expected
    # Adjacent memory is not copied.
    @test !Base.mightalias(CPython.import_of(from_dlpack, "m[0, ::-1]"), CPython.import_of(from_dlpack, "m[1]"))
    @test !Base.mightalias(CPython.import_of(from_dlpack, "m[:0, ::-1]"), x)
end

# `detect_ambiguities` compares the methods of all modules, which takes 10 s.
@testset "methods are never ambiguous" begin
    ambiguous, compared = Any[], 0
    for M in (Base, LinearAlgebra), name in names(M)
        f = isdefined(M, name) ? getfield(M, name) : nothing
        f isa Function || continue
        of_f = collect(methods(f))
        for a in filter(method -> method.module === DLBridge, of_f), b in of_f
            compared += 1
            a !== b && Base.isambiguous(a, b) && push!(ambiguous, (a, b))
        end
    end
    @test isempty(ambiguous)
    @test compared > 1000
end

@testset "products equal those of arrays" begin
    run_python("""
    f = np.arange(12.0).reshape(3, 4); f.flags.writeable = False
    c = f.astype('complex64') * (1 + 2j); c.flags.writeable = False
    """)
    operands = Any[]
    for code in ("f", "f[:, ::-1]", "c", "(f > 4)[::-1]", "f[:0]"), layout in (RowMajor, ColMajor)
        push!(operands, CPython.import_of(o -> from_dlpack(o; layout = layout), code))
    end
    append!(operands, map(code -> CPython.import_of(from_dlpack, code), ("f[0]", "f[:, 1]", "c[0]")))
    @test count(x -> x isa StridedTensor, operands) == 11
    append!(operands, vcat(map(transpose, operands[1:2]), map(adjoint, operands[5:6])))
    plain(x::Union{Transpose,Adjoint}) = (x isa Adjoint ? adjoint : transpose)(Array(parent(x)))
    plain(x) = Array(x)
    for A in operands, B in operands
        size(A, 2) == size(B, 1) && ndims(A) == 2 || continue
        expected = plain(A) * plain(B)
        @test A * B == A * plain(B) == plain(A) * B == expected
        C = fill(one(eltype(expected)), size(expected))
        @test mul!(copy(C), A, B, 2, 3) == mul!(copy(C), plain(A), plain(B), 2, 3)
    end
    x, y = CPython.import_of(from_dlpack, "f[0]"), CPython.import_of(from_dlpack, "f[1, ::-1]")
    @test dot(x, y) == dot(y, x) == dot(Array(x), y) == dot(x, Array(y)) == 28
end

@testset "a promise not to write makes a plain array" begin
    run_python("r = np.arange(3.0); r.flags.writeable = False")
    @test CPython.import_of(o -> from_dlpack(o; write = false), "r") isa Vector{Float64}
    o = py("r")
    x = @inferred from_dlpack(Vector{Float64}, ColMajor, o; write = false)
    @test x == 0:2
    error = try from_dlpack(Vector{Float64}, ColMajor, o) catch e; e end
    @test occursin("write = false", error.msg)
    drop(o)
    # The promise does not change other reasons for a StridedTensor.
    @test is_readonly(CPython.import_of(o -> from_dlpack(o; write = false), "r[::-1]"))
end
