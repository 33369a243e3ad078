# What PythonCall has of its own, and what DLPack.jl's tests ask for.

run_python("import gc, sys, numpy as np")
include("common.jl")

@testset "PyArray and PyIterable stand for their objects" begin
    run_python("a = np.arange(6.0).reshape(2, 3)")
    for o in (PyArray(py("a")), PyIterable(py("a")))
        x = from_dlpack(o)
        @test x isa Matrix{Float64} && size(x) == (3, 2)
        @test from_dlpack(Matrix{Float64}, RowMajor, o) == x
        @test wrap(o, py("lambda o: o.__dlpack__()")) == x
    end
    for code in ("a", "a[::-1, ::2]", "a.T")
        set("s", share(PyArray(py(code)), py("np.from_dlpack"); layout = ColMajor))
        @test value(Bool, "(s == $code).all() and np.shares_memory(s, a)")
    end
    run_python("r = np.arange(3); r.flags.writeable = False")
    set("s", share(PyArray(py("r")), py("np.from_dlpack")))
    @test value(Bool, "not s.flags.writeable")
    @test_throws ArgumentError share(PyArray(py("np.array(['text'])")), py("np.from_dlpack"))
    run_python("del s")
end

if !value(Bool, "__import__('importlib.util').util.find_spec('torch') is not None")
    skip("PyTorch", "not installed")
else
    @testset "what DLPack.jl tests with PyTorch and NumPy" begin
        torch, np = pyimport("torch"), pyimport("numpy")
        # DLPack.jl makes a Vector{Bool} of any bytes.
        u = from_dlpack(torch.ones(8, dtype = torch.bool))
        @test u isa AbstractVector{Bool} && all(u)
        v = torch.ones((2, 4), dtype = torch.float64)
        x = wrap(v, torch.to_dlpack)
        @test pyconvert(Int, v.ndim) == 2 == ndims(x)
        @test DLBridge.name(DLBridge.dtype(eltype(x))) == pyconvert(String, pystr(v.dtype))[7:end]
        # A legacy capsule cannot say that memory may be written; DLPack.jl writes all the same.
        @test_throws ArgumentError x[5] = 0
        wrap(v, torch.to_dlpack; assume_writable = true)[5] = 0
        @test x[5] == 0 == from_dlpack(v)[5]
        @test pyconvert(Bool, torch.equal(v, torch.tensor(pyeval("[[1., 1, 1, 1], [0, 1, 1, 1]]", GLOBALS), dtype = torch.float64)))

        @test pyconvert(Bool, share(ones(Bool, 8), np.from_dlpack).dtype == np.bool_)
        v = ComplexF32[1, 2, 3]
        n, t = share(v, np.from_dlpack), share(v, torch.from_dlpack)
        @test all(pyconvert.(Int, (n.ndim, t.ndim)) .== 1)
        @test pyconvert(Bool, n.dtype == np.complex64)
        @test pyconvert(Bool, t.dtype == torch.complex64)
        v[1] = 0
        @test pyconvert(Bool, (n[0] == 0).item()) && pyconvert(Bool, (t[0] == 0).item())
        A = rand(2, 2)
        n, t = share(A, np.from_dlpack), share(A, torch.from_dlpack)
        @test all(pyconvert.(Int, (n.ndim, t.ndim)) .== 2)
        @test pyconvert(Bool, n.dtype == np.float64)
        @test pyconvert(Bool, t.dtype == torch.float64)
        @test pyconvert(Float64, n[1, 0]) == A[1, 2] == pyconvert(Float64, t[1, 0].item())
    end
end

@testset "threads that hold the GIL by turns" begin
    run_python("""
    import threading
    def drop_in_thread(box):
        thread = threading.Thread(target=box.clear)
        thread.start()
        return thread
    """)
    for _ in 1:100
        run_python("box = []")
        py("box").append(share(zeros(10), py("np.from_dlpack")))
        run_python("thread = drop_in_thread(box)")
        PythonCall.GIL.@unlock yield()
        py("thread").join()
    end
    settle()
    @test DLBridge.shared_count() == 0
end

@noinline import_and_forget(code) = (from_dlpack(py(code)); nothing)

"Waits for Julia's event loop alone: nothing of DLBridge is called."
function eventually(is_so)
    deadline = time() + 10
    while !is_so() && time() < deadline
        GC.gc()
        sleep(0.01)
    end
    return is_so()
end

# A wake-up in vain, while the thread does not hold the GIL, must not be the last one.
@testset "Julia releases tensors after a drain without the GIL" begin
    run_python("import weakref; watched = np.arange(10.0); watch = weakref.ref(watched)")
    holder = Any[from_dlpack(py("np.arange(3.0)"))]
    import_and_forget("watched")
    run_python("del watched")
    PythonCall.GIL.@unlock begin
        GC.gc()
        # The event loop runs, and may release nothing.
        sleep(0.1)
        @test DLBridge.pending_count() == 1
    end
    empty!(holder)
    @test eventually(() -> value(Bool, "watch() is None"))
    @test eventually(() -> DLBridge.pending_count() == 0)
end
