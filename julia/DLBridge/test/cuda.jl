# The extension for CUDA, with a stub of CUDA whose arrays are host memory. This tests which functions the extension calls,
# not the real package.

using DLBridge: from_dlpack, share

if isdefined(Base, :get_extension)
    skip("the stub of CUDA", "extensions need the package in the environment")
else
    pushfirst!(LOAD_PATH, joinpath(@__DIR__, "stubs"))
    import CUDA

    # An array of the stub, exported and imported again.
    @testset "CuArrays are exported and imported" begin
        numbers = collect(Float32, 1:6)
        A = unsafe_wrap(CUDA.CuArray, CUDA.CuPtr{Float32}(UInt(pointer(numbers))), (3, 2))
        o = share(A, PyRef, identity)
        set("device_array", o)
        @test CUDA.SYNCHRONIZED == [CUDA.CuDevice(3)]
        @test str("device_array.__dlpack_device__()") == "(2, 3)"
        @test str("type(device_array.__dlpack__(stream=1)).__name__") == "PyCapsule"
        x = from_dlpack(o)
        @test x isa CUDA.CuArray{Float32,2}
        @test size(x) == (3, 2)
        @test pointer(x).address == pointer(A).address
        @test from_dlpack(CUDA.CuArray{Float32,2}, RowMajor, o) isa CUDA.CuArray{Float32,2}
        @test_throws ArgumentError from_dlpack(Matrix{Float32}, RowMajor, o)
        @test_throws ArgumentError from_dlpack(o; layout = ColMajor)
        # Import and export use the array's device, not the current one.
        @test CUDA.CURRENT[] == CUDA.CuDevice(0)
        empty = from_dlpack(share(CUDA.CuArray{Float32,2}(undef, (0, 3)), PyRef, identity))
        @test empty isa CUDA.CuArray{Float32,2} && size(empty) == (0, 3)
        CUDA.UNIFIED[] = true
        managed = share(A, PyRef, identity)
        set("managed", managed)
        drop(managed)
        @test str("managed.__dlpack_device__()") == "(13, 3)"
        # The host can read managed memory as well; DLPack.jl takes it for a CuArray.
        o13 = py("managed")
        y = from_dlpack(o13)
        @test y isa CUDA.CuArray{Float32,2} && pointer(y).address == pointer(A).address
        @test from_dlpack(AbstractMatrix{Float32}, RowMajor, o13) isa CUDA.CuArray{Float32,2}
        @test from_dlpack(Matrix{Float32}, RowMajor, o13) == A
        DLBridge.USES_CUDA[] = false
        @test from_dlpack(o13) isa Matrix{Float32}
        DLBridge.USES_CUDA[] = true
        drop(o13)
        run_python("del managed")
        run_python("del device_array")
        drop(o)
        finalize(x.data.rc)
        DLBridge.drain()
    end
    settle()
end
