# Copies of strided tensors, assignments between overlapping ones, products.

using DLBridge: StridedTensor, is_readonly, aligned_array
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

# Linear algebra, reductions and BLAS over strided tensors: the values of Julia's arrays, and never a write to read-only
# memory.
run_python("""
rng = np.random.default_rng(1)
square = rng.random((6, 6)); square = square @ square.T + 6 * np.eye(6)
wide = rng.random((6, 10))
line = rng.random(6)
for array in (square, wide, line):
    array.flags.writeable = False
""")
const SQUARE, WIDE, LINE = map(code -> CPython.import_of(from_dlpack, code), ("square", "wide", "line"))
const SQUARES = (
    "tensor" => SQUARE, "view" => view(SQUARE, 2:5, 2:5), "reversed view" => view(SQUARE, 6:-1:1, 6:-1:1),
    "row-major tensor" => CPython.import_of(o -> from_dlpack(o; layout = ColMajor), "square"),
    "reshape" => reshape(CPython.import_of(from_dlpack, "square.ravel()"), 6, 6),
)

# Factorizations are compared by their product.
parts(x::Factorization) = Matrix(x)
parts(x::Tuple) = map(parts, x)
parts(x) = x
is_close(x::Tuple, y::Tuple) = all(map(is_close, x, y))
is_close(x::Union{Number,AbstractArray}, y) = x ≈ y
is_close(x, y) = x == y

@testset "functions that Julia defines for an Array copy a $name" for (name, x) in SQUARES
    X = Array(x)
    for f in (svd, svdvals, inv, cholesky, exp, log, sqrt, lq, schur, qr, lu, eigvals, det, pinv, nullspace, isposdef, factorize, hessenberg)
        @test is_close(parts(f(x)), parts(f(X)))
    end
    for f in (lyap, svdvals), (a, b) in ((x, x), (x, X), (X, x))
        @test is_close(f(a, b), f(X, X))
    end
    @test x \ X ≈ I && X / x ≈ I && x^2 ≈ X^2 && x^0.5 ≈ X^0.5
    @test isposdef(Symmetric(x)) && inv(Hermitian(x)) ≈ inv(X) && eigvals(Symmetric(x)) ≈ eigvals(X)
    @test cholesky(Hermitian(x)).U ≈ cholesky(X).U
    @test inv(transpose(x)) ≈ inv(transpose(X)) && svd(x').S ≈ svd(X').S && x' \ X ≈ X' \ X
end

@testset "a view of $code multiplies as an Array does" for code in ("wide", "wide[:, ::-1]", "wide.T", "wide[:, 1:9]", "(wide > 0.5)")
    x = CPython.import_of(from_dlpack, code)
    n = minimum(size(x))
    for y in (view(x, :, 1:2:n), view(x, 2:n, :), view(x, n:-1:1, 1:n), view(x, [1, 3], :), view(x, 2, :), view(x, :, 2), reshape(x, :), reshape(view(x, :, 1), :, 1))
        Y = Array(y)
        @test sum(y) ≈ sum(Y) && prod(y) ≈ prod(Y) && maximum(y) == maximum(Y) && sum(abs2, y) ≈ sum(abs2, Y)
        @test sum(y; dims = 1) ≈ sum(Y; dims = 1) && reduce(+, y; init = 1.0) ≈ sum(Y) + 1
        @test norm(y) ≈ norm(Y) && norm(y, 1) ≈ norm(Y, 1)
        @test dot(y, y) ≈ dot(y, Y) ≈ dot(Y, y) ≈ dot(Y, Y)
        if ndims(y) == 2
            @test transpose(y) * y ≈ transpose(Y) * Y && y * y' ≈ Y * Y' && y * Y' ≈ Y * y' ≈ Y * Y'
            @test issymmetric(y' * y) && issymmetric(y * transpose(y))
            @test y * ones(size(y, 2)) ≈ Y * ones(size(Y, 2))
            @test permutedims(y) == permutedims(Y) == permutedims(y, (2, 1)) && permutedims(y, (1, 2)) == Y
        end
    end
end

@testset "BLAS reads a tensor and its views in place" begin
    for (x, start) in (
        (SQUARE, pointer(SQUARE)), (view(SQUARE, 2:4, 3:6), pointer(SQUARE, 14)), (view(WIDE, :, 2), pointer(WIDE, 11)),
        (view(WIDE, 3, :), pointer(WIDE, 3)), (reshape(SQUARE, 4, 9), pointer(SQUARE)),
        (CPython.import_of(o -> from_dlpack(o; layout = ColMajor), "wide[:, 2:]"), nothing),
    )
        array = DLBridge.plain(x)
        @test array isa Union{StridedArray,Transpose{Float64,<:StridedMatrix}} && array == x
        @test pointer(array isa Transpose ? parent(array) : array) == something(start, pointer(x))
    end
end

@testset "views and reshapes of a tensor are tensors over the same memory" begin
    cube = CPython.import_of(from_dlpack, "np.arange(24.0).reshape(2, 3, 4)[:, ::-1]")
    for x in (SQUARE, LINE, cube), indices in Iterators.product(fill((:, 2, 2:3, 4:-2:1, 3:2, 0x01:0x02), ndims(x))...)
        all(checkindex(Bool, axes(x, k), index isa Colon ? axes(x, k) : index) for (k, index) in enumerate(indices)) || continue
        y, Y = view(x, indices...), view(Array(x), indices...)
        @test y isa StridedTensor && size(y) == size(Y) && y == Y && y.root === x.root && is_readonly(y) == is_readonly(x)
        @test reshape(y, length(Y)) == vec(Y) && reshape(y, 1, length(Y)) == reshape(Y, 1, :)
    end
    @test reshape(view(LINE, 6:-1:1), 3, 2) isa StridedTensor && reshape(SQUARE, 4, 9) isa StridedTensor
    # By other indices, and where the elements have no strides, the wrappers of Julia.
    @test view(SQUARE, [2, 1], :) == Array(SQUARE)[[2, 1], :] && view(SQUARE, 3:9) == Array(SQUARE)[3:9]
    @test view(LINE, LINE .> 0.5) == filter(>(0.5), Array(LINE))
    @test reshape(view(SQUARE, 1:4, :), 3, 8) == reshape(SQUARE[1:4, :], 3, 8) && inv(reshape(view(SQUARE, 1:2, 1:2), 2, 2)) ≈ inv(SQUARE[1:2, 1:2])
    for indices in ((7, 1), (0, 1), (1:7, 1), (:, 7), (true, 1))
        @test_throws Union{BoundsError,ArgumentError} view(SQUARE, indices...)
    end
    @test_throws DimensionMismatch reshape(SQUARE, 5, 7)
    @test reshape(SQUARE, :) isa StridedTensor{Float64,1} && reshape(SQUARE, 9, :) == reshape(Array(SQUARE), 9, :)
end

@testset "a reduction copies no broadcast array" begin
    x = CPython.import_of(from_dlpack, "np.broadcast_to(np.arange(100.0), (100, 100))")
    @test sum(x) == 100 * 4950 && norm(x) ≈ norm(Array(x)) && maximum(x) == 99
    @test DLBridge.with_array(array -> array === nothing, x)
    # Strides of axes of one element or none, which may be anything.
    for y in (view(x, 1:2:0, 1), view(x, 1:0, :), view(WIDE, 1:1, :), view(WIDE, :, 1:1), view(WIDE, :, 1:0), view(LINE, 1:2:0))
        @test norm(y) ≈ norm(Array(y)) && sum(y) == sum(Array(y)) && DLBridge.plain(y) == Array(y)
    end
end

@testset "a tensor is not closed while a function of the user reads it" begin
    x = CPython.import_of(from_dlpack, "np.arange(4.0)[::-1]")
    errors = Any[]
    @test sum(v -> (try DLBridge.close(x) catch e; push!(errors, e) end; v), x) == 6
    @test length(errors) == 4 && all(e -> e isa ArgumentError, errors)
    @test_throws DivideError sum(v -> div(1, 0), x)
    DLBridge.close(x)
    @test_throws ArgumentError sum(x)
    @test_throws ArgumentError norm(x)
    @test_throws ArgumentError inv(reshape(x, 2, 2))
end

@testset "functions that take a pointer refuse read-only memory" begin
    before = copy(LINE)
    writable = zeros(6)
    for x in (LINE, view(LINE, 1:6))
        @test_throws ArgumentError BLAS.scal!(6, 0.0, x, 1)
        @test_throws ArgumentError BLAS.axpy!(6, 1.0, ones(6), 1, x, 1)
        @test_throws ArgumentError BLAS.blascopy!(6, writable, 1, x, 1)
        @test_throws ArgumentError BLAS.axpby!(6, 1.0, ones(6), 1, 0.0, x, 1)
        @test_throws ArgumentError BLAS.rot!(6, writable, 1, x, 1, 0.0, 1.0)
    end
    @test_throws ArgumentError BLAS.gemm!('N', 'N', 1.0, ones(6, 6), ones(6, 6), 0.0, SQUARE)
    @test_throws ArgumentError LAPACK.getrf!(SQUARE)
    @test_throws ArgumentError ccall(:memset, Ptr{Cvoid}, (Ptr{Float64}, Cint, Csize_t), LINE, 0, 8)
    @test LINE == before
    error = try BLAS.scal!(6, 0.0, LINE, 1) catch e; e end
    @test occursin("read-only memory; pass copy(A)", error.msg)
    @test unsafe_load(pointer(LINE)) == LINE[1] && unsafe_load(pointer(SQUARE, 8)) == SQUARE[8]
    # Writable memory is written through its strides.
    run_python("w = np.arange(6.0)")
    BLAS.scal!(3, 10.0, CPython.import_of(from_dlpack, "w[::2]"), 2)
    @test CPython.str("w.tolist()") == "[0.0, 1.0, 20.0, 3.0, 40.0, 5.0]"
end

@testset "aligned arrays" begin
    for T in (UInt8, Float32, ComplexF64), dims in ((), (3,), (0, 2), (2, 3))
        A = aligned_array(T, dims...)
        @test A isa Array{T,length(dims)} && size(A) == dims && UInt(pointer(A)) % 64 == 0
    end
    A = aligned_array([1.0 2.0; 3.0 4.0])
    @test A == [1.0 2.0; 3.0 4.0]
    holder = Any[reshape(aligned_array(collect(1.0:100.0)), 10, 10) for _ in 1:50]
    settle()
    junk = [fill(7.0, 100) for _ in 1:1000]
    @test all(==(reshape(1.0:100.0, 10, 10)), holder)
    @test_throws ArgumentError aligned_array(String, 2)
    @test_throws ArgumentError aligned_array(Float64, -1)
    @test_throws OverflowError aligned_array(Float64, typemax(Int), 2)
end

run_python("cube = rng.random((3, 4, 5)); cube.flags.writeable = False; long = np.broadcast_to(np.ones(1), (2**40,))")

@testset "functions over all elements of a $name have the values of an Array" for (name, x) in (
    SQUARES..., "vector" => LINE, "part of a vector" => view(LINE, 2:5), "reversed vector" => view(LINE, 6:-1:1), "matrix" => WIDE,
    "row-major cube" => CPython.import_of(o -> from_dlpack(o; layout = ColMajor), "cube"), "cube" => CPython.import_of(from_dlpack, "cube"),
)
    X = Array(x)
    for f in (any, all, count, findall, findfirst, findlast, filter, map)
        @test f(v -> v > 0.5, x) == f(v -> v > 0.5, X)
    end
    @test sum(x) ≈ sum(X) && norm(x) ≈ norm(X) && dot(x, x) ≈ dot(X, X) && dot(x, X) ≈ dot(X, X) && maximum(x) == maximum(X)
    @test sum(x; dims = 1) ≈ sum(X; dims = 1) && any(v -> v > 0.9, x; dims = 1) == any(v -> v > 0.9, X; dims = 1)
    total = Ref(0.0)
    foreach(v -> total[] += v, x)
    @test total[] ≈ sum(X) && [2v for v in x] == [2v for v in X] && circshift(x, 1) == circshift(X, 1)
    if ndims(x) == 2
        @test all(f -> f(x) == f(X), (rotl90, rotr90, rot180)) && mapslices(sum, x; dims = 1) == mapslices(sum, X; dims = 1)
        @test copy(transpose(x)) == copy(transpose(X)) && copy(x') isa Matrix && circshift(x, (1, 2)) == circshift(X, (1, 2))
    end
    # Not of any order.
    @test reduce((a, b) -> a / 2 + b, vec(x)) ≈ reduce((a, b) -> a / 2 + b, vec(X))
    @test x == X && X == x && x == x && first(X) in x && map(+, x, x) == X + X && collect(x) == Array{Float64}(x) == X
    @test x + x == X + X && 2x == 2X && -x == -X && x .+ 1 == X .+ 1 && x .* X .- 1 == X .* X .- 1 && sqrt.(x) == sqrt.(X)
    @test (x .> 0.5) isa BitArray && (X .= x .* 2) == 2 .* x
    if ndims(x) == 1
        for f in (findmax, findmin, argmax, argmin, diff, reverse, sortperm)
            @test f(x) == f(collect(x))
        end
        @test x[2:3] == collect(x)[2:3] && x[:] == collect(x) && vcat(x, x) == repeat(collect(x), 2)
    else
        @test x[:, 1:2, ntuple(_ -> 1, ndims(x) - 2)...] == collect(x)[:, 1:2, ntuple(_ -> 1, ndims(x) - 2)...]
    end
end

@testset "a row-major matrix and its transpose are not taken for each other" begin
    run_python("skew = square + np.arange(6); skew.flags.writeable = False")
    rowwise = CPython.import_of(o -> from_dlpack(o; layout = ColMajor), "skew")
    columnwise = CPython.import_of(from_dlpack, "skew")
    @test dot(rowwise, columnwise) ≈ dot(Array(rowwise), Array(columnwise))
    @test dot(columnwise, rowwise) ≈ dot(Array(columnwise), Array(rowwise))
end

@testset "in broadcasts with other arrays a tensor counts as an Array" begin
    @test typeof(SQUARE .* Diagonal(1.0:6.0)) == typeof(Array(SQUARE) .* Diagonal(1.0:6.0))
    @test (LINE .* LINE' .+ SQUARE) == Array(LINE) .* Array(LINE)' .+ Array(SQUARE)
end

@testset "no array is made of a broadcast tensor" begin
    x = CPython.import_of(from_dlpack, "long")
    @test any(isone, x) && findfirst(isone, x) == 1 && 1.0 in x && x[2:3] == [1, 1]
end

@testset "memory stays open while functions of the user run" begin
    x = CPython.import_of(from_dlpack, "wide")
    @test_throws ArgumentError map(v -> (DLBridge.close(x); v), x)
    @test_throws ArgumentError broadcast(v -> (DLBridge.close(x); v), x)
    @test isopen(x) && DLBridge.close(x) === nothing
    @test_throws ArgumentError x .+ 1
    @test_throws ArgumentError any(iszero, x)
    @test_throws ArgumentError Array(x)
end
