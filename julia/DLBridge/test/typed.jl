# Typed imports: inferred result types, and errors for other tensors.

using DLBridge: from_dlpack, StridedTensor

run_python("a = np.arange(6, dtype='float32').reshape(2, 3)")

@testset "the result type is inferred" begin
    o = py("a")
    @test (@inferred from_dlpack(Matrix{Float32}, RowMajor, o)) == [0 3; 1 4; 2 5]
    x = @inferred from_dlpack(AbstractMatrix{Float32}, RowMajor, o)
    @test x isa StridedTensor{Float32,2} && x == [0 3; 1 4; 2 5]
    y = @inferred from_dlpack(StridedTensor{Float32,2}, ColMajor, o)
    @test y == [0 1 2; 3 4 5]
    @test from_dlpack(DenseMatrix{Float32}, RowMajor, o) isa Matrix{Float32}
    @test_throws ArgumentError from_dlpack(BitMatrix, RowMajor, py("np.ones((2, 2), bool)"))
    z = @inferred from_dlpack(Matrix{Float32}, ColMajor, o; copy = true)
    @test z == y
    w = from_dlpack(AbstractMatrix{Float32}, ColMajor, o; copy = true)
    @test w isa StridedTensor{Float32,2} && w == y
    w[1, 1] = 9
    @test y[1, 1] == 0
    drop(o)
end

@testset "errors name the type, rank or layout that differs" begin
    o = py("a")
    message(work) = try work(); "" catch e; e isa ArgumentError ? e.msg : rethrow() end
    @test message(() -> from_dlpack(Matrix{Int32}, RowMajor, o)) ==
          "dtype: expected int32 for Int32, found float32"
    @test message(() -> from_dlpack(Vector{Float32}, RowMajor, o)) ==
          "rank: expected 1 axes, found 2"
    @test occursin("strides are not those of ColMajor", message(() -> from_dlpack(Matrix{Float32}, ColMajor, o)))
    drop(o)
end

@testset "a rejected tensor is released" begin
    run_python("import weakref; t = np.arange(4.0); watch = weakref.ref(t)")
    o = py("t")
    @test_throws ArgumentError from_dlpack(Vector{Int8}, RowMajor, o)
    drop(o)
    run_python("del t")
    @test truth("watch() is None")
end
