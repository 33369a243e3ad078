# The rule for the order of axes.

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
