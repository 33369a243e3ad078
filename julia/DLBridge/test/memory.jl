# The rule for the order of axes, and `DLBridge.memory`: the elements read by address and strides are those of the array.

using LinearAlgebra

function read_back(A::AbstractArray{T}) where {T}
    start, steps = DLBridge.memory(A)
    return map(CartesianIndices(A)) do index
        offset = mapreduce(*, +, Tuple(index) .- 1, steps; init = 0)
        unsafe_load(Ptr{T}(start) + offset * sizeof(T))
    end
end

const M = reshape(collect(1.0:60.0), 3, 4, 5)

@testset "$(typeof(A))" for A in (
    M, view(M, :, 2, :), view(M, 2:3, 4:-2:1, [1 2 3 4 5][1]:2:5), view(M, 1:7), view(M, 3, 2, 1:5),
    PermutedDimsArray(M, (3, 1, 2)), view(PermutedDimsArray(M, (2, 3, 1)), 4:-1:2, 5, :),
    transpose(M[:, :, 1]), adjoint(M[:, :, 1]), transpose(view(M, :, 1:2:4, 2)),
    transpose(collect(1:4)), adjoint(view(M, 1, 1, :)), reshape(view(M, :, :, 2:3), 6, 4),
    reinterpret(UInt64, M), view(M, 3:-1:1, 1, 1), fill(7.0), view(M, 2, 2, 2),
    reshape(PermutedDimsArray(M, (1, 2, 3)), 60), transpose(transpose(view(M, :, :, 1))),
)
    @test read_back(A) == A
end

@testset "arrays without regular steps are refused" begin
    for A in (view(M, [1, 3], 1, 1), 1:3, M .> 2, view(M, :, :, :)[1:2, 1, 1] |> Diagonal,
              adjoint(ComplexF64[1 2; 3 4]), reshape(view(M, 1:2, :, 1), 8))
        @test_throws ArgumentError DLBridge.memory(A)
    end
end

@testset "element types are named" begin
    @test DLBridge.name(DLBridge.dtype(Float32)) == "float32"
    @test DLBridge.name(DLBridge.DType(10, 8, 1)) == "float8_e4m3fn"
    @test DLBridge.name(DLBridge.Device(20, 1)) == "tpu_host:1"
    @test_throws ArgumentError DLBridge.dtype(String)
    @test_throws ArgumentError DLBridge.register_dtype(Vector{Int})
    for (T, _) in DLBridge.STANDARD
        @test DLBridge.julia_type(DLBridge.dtype(T)) === T
    end
end

info_of(shape, strides, row, col) = GC.@preserve shape strides DLBridge.is_reversed(DLBridge.Info(
    C_NULL, 0, pointer(shape), pointer(strides), prod(shape), 0, DLBridge.HOST,
    DLBridge.DType(2, 32, 1), length(shape), 1, row, col, 0, C_NULL,
))

@testset "contiguous tensors arrive in their own order" begin
    @test info_of([2, 3], [3, 1], 1, 0)
    @test !info_of([2, 3], [1, 2], 0, 1)
end

@testset "tensors contiguous in both orders count as row-major" begin
    @test info_of([1, 3], [3, 1], 1, 1)
    @test info_of([3, 1], [1, 3], 1, 1)
end

@testset "strides that grow with the axis count as column-major" begin
    @test info_of([2, 3], [6, 2], 0, 0)
    @test !info_of([2, 3], [2, 8], 0, 0)
    @test info_of([2, 3], [-6, -2], 0, 0)
    @test !info_of([4], [-1], 0, 0)
    @test info_of([2, 3, 4], [1, 40, 10], 0, 0)
    # An axis of one element has no say.
    @test !info_of([2, 1, 4], [2, 1, 8], 0, 0)
end

@testset "a layout is RowMajor or ColMajor" begin
    @test DLBridge.is_reversed(RowMajor)
    @test !DLBridge.is_reversed(ColMajor)
    @test DLBridge.is_reversed(RowMajor()) && !DLBridge.is_reversed(ColMajor())
    @test_throws ArgumentError DLBridge.is_reversed(Int)
    @test_throws ArgumentError DLBridge.is_reversed(:RowMajor)
end
