# PyTorch and JAX, where they are installed: both directions.

using DLBridge: from_dlpack, share, is_readonly, StridedTensor

"What import raises, as text."
refused(code) = try CPython.import_of(from_dlpack, code); "" catch e; sprint(showerror, e) end

function pass(A, consumer)
    o = share(A, py(consumer))
    set("s", o)
    drop(o)
end

if !CPython.has("torch")
    skip("PyTorch", "not installed")
else
    run_python("import torch")

    @testset "PyTorch to Julia" begin
        run_python("t = torch.arange(6, dtype=torch.float32).reshape(2, 3)")
        x = CPython.import_of(from_dlpack, "t")
        @test x isa Matrix{Float32} && x == [0 3; 1 4; 2 5]
        x[1, 2] = 30
        @test int("int(t[1, 0])") == 30
        @test CPython.import_of(from_dlpack, "t[:, ::2]") == [0 30; 2 5]
        # Column-major, so it arrives as it is.
        @test CPython.import_of(from_dlpack, "t.T") == [0 30; 1 4; 2 5]
        @test CPython.import_of(from_dlpack, "torch.zeros(2, 0)") isa Matrix{Float32}
        @test CPython.import_of(from_dlpack, "torch.tensor(3)")[] == 3
        @test CPython.import_of(from_dlpack, "torch.tensor([True, False])") isa Vector{Bool}
        @test occursin("found bfloat16", refused("torch.zeros(2, dtype=torch.bfloat16)"))
        @test endswith(refused("torch.zeros(2, dtype=torch.bfloat16)"), "; load BFloat16s")
        @test occursin("found float8_e5m2", refused("torch.zeros(2, dtype=torch.float8_e5m2)"))
        @test endswith(refused("torch.zeros(2, dtype=torch.float8_e5m2)"), "; load DLFP8Types")
        @test occursin("resolve_conj", refused("torch.zeros(2, dtype=torch.complex64).conj()"))
        @test refused("torch.zeros(2, dtype=torch.complex64)") == ""
        # Autograd does not record what Julia writes.
        run_python("leaf = torch.ones(2, requires_grad=True)")
        @test is_readonly(CPython.import_of(from_dlpack, "leaf"))
        @test CPython.import_of(from_dlpack, "leaf.detach()") isa Vector{Float32}
        # Memory without data is refused, whatever PyTorch says of it.
        @test refused("torch.zeros(2, device='meta')") != ""
    end

    @testset "Julia to PyTorch" begin
        A = reshape(collect(1.0:6.0), 2, 3)
        pass(A, "torch.from_dlpack")
        @test str("tuple(s.shape)") == "(3, 2)"
        @test int("int(s[2, 1])") == 6
        run_python("s[0, 0] = 10")
        @test A[1, 1] == 10
        pass(view(A, :, 1:2:3), "torch.from_dlpack")
        @test str("s.tolist()") == "[[10.0, 2.0], [5.0, 6.0]]"
        # What PyTorch cannot have (negative strides) leaks nothing.
        @test_throws CPython.Raised share(view(A, 2:-1:1, 1), py("torch.from_dlpack"))
        run_python("del s")
        settle()
        @test DLBridge.shared_count() == 0
    end
end

if !CPython.has("jax")
    skip("JAX", "not installed")
else
    run_python("import jax, jax.numpy as jnp\njax.config.update('jax_enable_x64', True)")

    @testset "JAX to Julia" begin
        x = CPython.import_of(from_dlpack, "jnp.arange(6).reshape(2, 3)")
        @test x == [0 3; 1 4; 2 5]
        # Newer versions of JAX say that their arrays are read-only.
        @test x isa (is_readonly(x) ? StridedTensor{Int64,2} : Matrix{Int64})
        @test CPython.import_of(o -> from_dlpack(o; copy = true), "jnp.ones(2)") isa Vector{Float64}
        @test occursin("found float8_e4m3b11fnuz", refused("jnp.zeros(2, jnp.float8_e4m3b11fnuz)"))
    end

    # DLPack.jl 0.3.1 cannot share with JAX.
    @testset "Julia to JAX" begin
        A = reshape(collect(1.0:6.0), 2, 3)
        pass(A, "jax.dlpack.from_dlpack")
        @test str("s.shape") == "(3, 2)"
        @test str("s.tolist()") == "[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]"
        run_python("del s")
        settle()
        @test DLBridge.shared_count() == 0
    end

    # XLA copies memory at any other address.
    @testset "JAX shares aligned arrays, however small" begin
        A = DLBridge.aligned_array([1.0, 2.0, 3.0])
        pass(A, "jnp.from_dlpack")
        @test UInt(int("s.unsafe_buffer_pointer()")) == UInt(pointer(A))
        A[2] = 20
        @test int("int(s[1])") == 20
        run_python("del s")
        settle()
        @test DLBridge.shared_count() == 0
    end
end

# The extension for CUDA, with a stub of CUDA whose arrays are host memory. This tests which functions the extension calls,
# not the real package.
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
