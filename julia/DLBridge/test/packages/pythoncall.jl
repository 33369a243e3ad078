# Tests for PythonCall only.

@testset "PyArray and PyIterable are accepted for their objects" begin
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

# A wake-up while no thread holds the GIL must be repeated.
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
