# Tests for PyCall only.

@testset "functions are PyObjects" begin
    np = pyimport("numpy")
    p = share([1.0 2.0; 3.0 4.0], np.from_dlpack)
    @test p isa PyObject && p.shape == (2, 2)
    @test share([1.0], PyObject, o -> o) isa PyObject
    # By its name PyCall would make a Julia copy.
    a = pycall(np.arange, PyObject, 3.0)
    from_dlpack(a)[1] = 7
    @test a.tolist() == [7, 1, 2]
end
