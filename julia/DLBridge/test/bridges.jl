# The files of ext/, loaded by stand-ins for PyCall, PythonCall, CUDA, BFloat16s and DLFP8Types.
# What the real packages do cannot be seen here, only that ours call them by their names.

using DLBridge: from_dlpack, share, wrap

const STUBS = joinpath(@__DIR__, "stubs")

if isdefined(Base, :get_extension)
    skip("stand-ins for other packages", "extensions need the packages in the environment")
else
    pushfirst!(LOAD_PATH, STUBS)
    import PyCall, PythonCall, CUDA, BFloat16s, DLFP8Types
    PyCall.CPYTHON[] = CPython

    @testset "PyCall" begin
        o = PyCall.evaluate("np.arange(6.0).reshape(2, 3)")
        @test from_dlpack(o) == [0 3; 1 4; 2 5]
        @test from_dlpack(Matrix{Float64}, RowMajor, o) == [0 3; 1 4; 2 5]
        to_dlpack = PyCall.evaluate("lambda o: o.__dlpack__()")
        @test wrap(o, to_dlpack) == [0 3; 1 4; 2 5]
        A = [1.0 2.0; 3.0 4.0]
        p = share(A, PyCall.evaluate("np.from_dlpack"))
        @test p isa PyCall.PyObject
        @test string(p) == "[[1. 3.]\n [2. 4.]]"
        @test share(A, PyCall.PyObject, identity) isa PyCall.PyObject
        @test share(A, PyCall.PyObject) isa PyCall.PyObject
    end

    @testset "PythonCall" begin
        o = PythonCall.Py(PythonCall.C.PyPtr(py("np.arange(3)").pointer))
        @test from_dlpack(o) == 0:2
        p = share([1, 2], PythonCall.Py, identity)
        @test p isa PythonCall.Py
        @test from_dlpack(p) == [1, 2]
    end

    @testset "more than one package for Python" begin
        error = try share([1], identity) catch e; e end
        @test error isa ArgumentError && occursin("name the one to use", error.msg)
    end

    @testset "BFloat16s" begin
        if CPython.has("torch")
            run_python("import torch")
            x = CPython.import_of(from_dlpack, "torch.ones(2, dtype=torch.bfloat16)")
            @test x isa Vector{BFloat16s.BFloat16}
            @test reinterpret(UInt16, x[1]) == 0x3f80
        end
        @test DLBridge.julia_type(DLBridge.DType(4, 16, 1)) === BFloat16s.BFloat16
        delete!(DLBridge.JULIA_TYPES, DLBridge.DType(4, 16, 1))
    end

    @testset "DLFP8Types" begin
        codes = DLBridge.DLBridgeDLFP8TypesExt.CODES
        for (T, code) in codes
            capsule = share([reinterpret(T, 0x38)], PyRef)
            x = from_dlpack(capsule; copy = true)
            @test x isa Vector{T} && reinterpret(UInt8, x[1]) == 0x38
            drop(capsule)
            @test endswith(DLBridge.name(DLBridge.dtype(T)), lowercase(string(nameof(T))))
        end
        foreach(pair -> delete!(DLBridge.JULIA_TYPES, DLBridge.dtype(first(pair))), codes)
    end

    # A stand-in's array, shared with Python and taken back: its memory is the host's.
    @testset "CUDA" begin
        numbers = collect(Float32, 1:6)
        A = unsafe_wrap(CUDA.CuArray, CUDA.CuPtr{Float32}(UInt(pointer(numbers))), (3, 2))
        o = share(A, PyRef, identity)
        set("device_array", o)
        @test CUDA.SYNCHRONIZED[] == 1
        @test str("device_array.__dlpack_device__()") == "(2, 3)"
        @test str("type(device_array.__dlpack__(stream=1)).__name__") == "PyCapsule"
        x = from_dlpack(o)
        @test x isa CUDA.CuArray{Float32,2}
        @test size(x) == (3, 2)
        @test pointer(x).address == pointer(A).address
        @test from_dlpack(CUDA.CuArray{Float32,2}, RowMajor, o) isa CUDA.CuArray{Float32,2}
        @test_throws ArgumentError from_dlpack(Matrix{Float32}, RowMajor, o)
        @test_throws ArgumentError from_dlpack(o; layout = ColMajor)
        run_python("del device_array")
        drop(o)
        finalize(x.data.rc)
        DLBridge.drain()
    end
    settle()
end
