# What PyCall does in ways of its own, and what DLPack.jl's tests ask for.

run_python("import gc, sys, numpy as np")
include("common.jl")

@testset "functions as PyCall gives them" begin
    np = pyimport("numpy")
    p = share([1.0 2.0; 3.0 4.0], np.from_dlpack)
    @test p isa PyObject && p.shape == (2, 2)
    @test share([1.0], PyObject, o -> o) isa PyObject
    # By its name PyCall would make a Julia copy.
    a = pycall(np.arange, PyObject, 3.0)
    from_dlpack(a)[1] = 7
    @test a.tolist() == [7, 1, 2]
end

if !value(Bool, "__import__('importlib.util').util.find_spec('jax') is not None")
    skip("JAX", "not installed")
else
    @testset "what DLPack.jl tests with JAX" begin
        run_python("import jax, jax.numpy as jnp; jax.config.update('jax_enable_x64', True)")
        jnp = pyimport("jax.numpy")
        v = jnp.asarray([1.0, 2.0, 3.0], dtype = jnp.float32)
        x = from_dlpack(v)
        @test v.ndim == 1 == ndims(x)
        @test DLBridge.name(DLBridge.dtype(eltype(x))) == v.dtype.name
        @test x == [1, 2, 3]
        # Newer versions of JAX say that their arrays never change.
        is_readonly(x) ? (@test_throws ArgumentError x[1] = 0) : (@test (x[1] = 1) == 1)
        y = @inferred from_dlpack(Vector{Float32}, ColMajor, v; write = false)
        @test pointer(y) == pointer(x)

        w = jnp.asarray([1 2; 3 4], dtype = jnp.int64)
        x = from_dlpack(w)
        @test w.ndim == 2 == ndims(x)
        @test x[1, 2] == 3
        @test (@inferred from_dlpack(Matrix{Int64}, RowMajor, w; write = false)) == [1 3; 2 4]

        v = UInt[1, 2, 3]
        p = share(v, jnp.from_dlpack)
        @test p.ndim == 1 == ndims(v)
        @test p.dtype.name == "uint64"
        # JAX copies memory that is not aligned to 64 bytes, as that of small arrays.
        v = collect(UInt, 1:1000)
        p = share(v, jnp.from_dlpack)
        v[1] = 0
        @test get(p, 0).item() == 0
        A = rand(2, 2)
        p = share(A, pyimport("jax.dlpack").from_dlpack)
        @test p.ndim == 2
        @test p.dtype.name == "float64"
        @test get(p, (1, 0)).item() == A[1, 2]
    end

    @testset "a product of JAX's matrices takes BLAS's time" begin
        run_python("m = jnp.asarray(np.random.rand(600, 600))")
        x, y = from_dlpack(py("m")), from_dlpack(py("m.T"))
        @test x * x ≈ Array(x) * Array(x)
        best(work) = (work(); minimum(_ -> (@elapsed work()), 1:10))
        A = Array(x)
        ours, julias = best(() -> x * x), best(() -> A * A)
        println("600 x 600 by 600 x 600: ", round(ours / julias; digits = 2), " x Julia's own")
        @test ours < 2 * julias
    end
end
