# Import of NumPy arrays: values, strides, read-only memory, errors. Typed imports: inferred result types, and errors for other
# tensors.

using DLBridge: from_dlpack, wrap, is_readonly, StridedTensor

# DLPack.jl 0.3.1 reads all of these as if they were contiguous.
@testset "strides of $code" for code in (
    "a[::2]", "a[:, ::-1]", "a[::-1, ::-1]", "a[1:, 1:3]", "a.T[::2]", "a[:, 1]", "a[::-1, 0]",
    "np.broadcast_to(a[0], (3, 4))", "a.reshape(2, 2, 4).transpose(1, 2, 0)", "a[::2, ::3].T",
    "np.asfortranarray(a)[1:, :]", "a[2:2]", "np.array(5.0)",
)
    run_python("a = np.arange(16.0).reshape(4, 4)\nb = $code")
    o = py("b")
    x = from_dlpack(o; layout = ColMajor)
    @test collect(size(x)) == [int("b.shape[$k]") for k in 0:ndims(x)-1]
    for index in CartesianIndices(x)
        at = join(Tuple(index) .- 1, ", ")
        @test x[index] == int("int(b[($at)])")
    end
    reversed = from_dlpack(o; layout = RowMajor)
    @test size(reversed) == reverse(size(x))
    @test all(x[index] == reversed[reverse(Tuple(index))...] for index in CartesianIndices(x))
    @test from_dlpack(o; layout = ColMajor, copy = true) == x
    @test from_dlpack(o; layout = ColMajor, copy = true) isa Array
    @test from_dlpack(o) == x || from_dlpack(o) == reversed
    drop(o)
end

@testset "the tensor's own layout is the default" begin
    @test size(CPython.import_of(from_dlpack, "np.zeros((2, 3))")) == (3, 2)
    @test size(CPython.import_of(from_dlpack, "np.zeros((2, 3), order='F')")) == (2, 3)
    @test size(CPython.import_of(from_dlpack, "np.zeros((1, 3))")) == (3, 1)
end

@testset "memory is shared both ways" begin
    run_python("a = np.arange(6, dtype='int32').reshape(2, 3)")
    o = py("a")
    x = from_dlpack(o)
    @test x isa Matrix{Int32}
    @test x == [0 3; 1 4; 2 5]
    x[3, 1] = 70
    @test int("a[0, 2]") == 70
    run_python("a[1, 0] = -8")
    @test x[1, 2] == -8

    y = CPython.import_of(from_dlpack, "a[:, ::-1]")
    @test y isa StridedTensor{Int32,2}
    y[1, 1] = 11
    @test int("a[0, 2]") == 11
    y .+= Int32(1)
    @test int("a[0, 2]") == 12
    @test_throws BoundsError y[4, 1]
    @test_throws BoundsError y[0, 1] = 1
    @test strides(y) == (-1, 3)
    drop(o)
end

@testset "writing to read-only memory throws" begin
    run_python("r = np.arange(4.0); r.flags.writeable = False")
    x = CPython.import_of(from_dlpack, "r")
    @test x isa StridedTensor{Float64,1}
    @test is_readonly(x) && is_readonly(view(x, 2:3)) && !is_readonly([1.0])
    @test x == [0, 1, 2, 3]
    @test_throws ArgumentError x[1] = 5
    @test_throws ArgumentError view(x, 2:3)[1] = 5
    @test_throws ArgumentError fill!(x, 1)
    @test CPython.str("r") == "[0. 1. 2. 3.]"
    @test_throws ArgumentError CPython.import_of(o -> from_dlpack(Vector{Float64}, ColMajor, o), "r")
end

@testset "Bools of the bytes 0 and 1 are a Vector{Bool}" begin
    run_python("t = np.array([True, False, True])")
    x = CPython.import_of(from_dlpack, "t")
    @test x isa Vector{Bool} && x == [true, false, true]
    x[2] = true
    @test truth("t.all()")
    @test (@inferred from_dlpack(Vector{Bool}, RowMajor, py("t"))) isa Vector{Bool}
    @test CPython.import_of(from_dlpack, "np.zeros((2, 3), bool)") isa Matrix{Bool}
    @test CPython.import_of(from_dlpack, "np.ones(4, bool)[::2]") isa StridedTensor{Bool,1}
end

@testset "Bools of other bytes are read as NumPy reads them" for byte in (2, 128, 255)
    run_python("t = np.array([0, $byte, 1], 'uint8').view('bool')")
    x = CPython.import_of(from_dlpack, "t")
    @test x isa StridedTensor{Bool,1}
    @test collect(x) == [false, true, true]
    @test count(x) == 2 == sum(x) && maximum(x)
    x[1] = true
    @test x[1] === true
    # As a Vector{Bool}, `count` would add the bits of the byte.
    error = try CPython.import_of(o -> from_dlpack(Vector{Bool}, RowMajor, o), "t") catch e; e end
    @test error isa ArgumentError && occursin("the bytes 0 and 1 for Bool", error.msg)
    copied = CPython.import_of(o -> from_dlpack(Vector{Bool}, RowMajor, o; copy = true), "t")
    @test count(copied) == 3 && reinterpret(UInt8, copied) == [1, 1, 1]
end

@testset "element type $word" for (T, word) in (
    (Int8, "int8"), (Int16, "int16"), (Int64, "int64"), (UInt8, "uint8"), (UInt16, "uint16"),
    (UInt32, "uint32"), (UInt64, "uint64"), (Float16, "float16"), (Float32, "float32"),
    (ComplexF32, "complex64"), (ComplexF64, "complex128"),
)
    x = CPython.import_of(from_dlpack, "np.array([1, 2, 100], '$word')")
    @test x isa Vector{T}
    @test x == T[1, 2, 100]
end

@testset "misaligned memory is read and written" begin
    x = CPython.import_of(from_dlpack, "np.frombuffer(bytearray(bytes(1) + np.arange(3.0).tobytes()), 'float64', offset=1)")
    @test x isa StridedTensor{Float64,1}
    @test x == [0, 1, 2]
    x[2] = 7
    @test x == [0, 7, 2]
end

@testset "empty and zero-dimensional arrays" begin
    @test CPython.import_of(from_dlpack, "np.zeros((0, 3), 'float32')") isa Matrix{Float32}
    @test size(CPython.import_of(from_dlpack, "np.zeros((0, 3))")) == (3, 0)
    @test CPython.import_of(from_dlpack, "np.array(4.0)")[] == 4.0
    @test CPython.import_of(from_dlpack, "np.array(4.0)") isa Array{Float64,0}
end

@testset "versioned and legacy capsules are consumed once" begin
    run_python("a = np.arange(3)")
    for arguments in ("", "max_version=(1, 0)")
        capsule = py("a.__dlpack__($arguments)")
        @test from_dlpack(capsule) == [0, 1, 2]
        error = try from_dlpack(capsule) catch e; e end
        @test error isa ArgumentError && occursin("consumed already", error.msg)
        drop(capsule)
    end
    o, maker = py("a"), py("lambda o: o.__dlpack__()")
    to_dlpack = object -> PyRef(CPython.call(maker, object))
    @test wrap(o, to_dlpack) == [0, 1, 2]
    # The legacy ABI has no read-only flag.
    error = try wrap(Vector{Int64}, ColMajor, o, to_dlpack) catch e; e end
    @test error isa ArgumentError && occursin("legacy capsule", error.msg) && occursin("assume_writable = true", error.msg)
    @test wrap(Vector{Int64}, ColMajor, o, to_dlpack; write = false) isa Vector{Int64}
    # The caller declares that the producer permits writing.
    x = wrap(o, to_dlpack; assume_writable = true)
    @test x isa Vector{Int64}
    x[1] = 7
    reversed = PyRef(CPython.call(py("lambda o: o[::-1].__dlpack__()"), o))
    y = from_dlpack(reversed; assume_writable = true)
    @test !DLBridge.is_readonly(y) && y[3] == 7
    y[3] = 0
    v = @inferred wrap(Vector{Int64}, ColMajor, o, to_dlpack; assume_writable = true)
    @test v == [0, 1, 2]
    # The producer's flag takes precedence.
    run_python("import numpy as np; flagged = np.arange(3); flagged.flags.writeable = False")
    flagged = py("flagged")
    @test DLBridge.is_readonly(from_dlpack(flagged; assume_writable = true))
    error = try from_dlpack(Vector{Int64}, ColMajor, flagged; assume_writable = true) catch e; e end
    @test error isa ArgumentError && !occursin("assume_writable", error.msg)
    drop(flagged)
    drop(o)
end

@testset "errors name the cause" begin
    message(work) = try work() catch e; sprint(showerror, e) end
    @test occursin("found <class 'str'>", message(() -> CPython.import_of(from_dlpack, "'text'")))
    run_python("""
    class Raises:
        def __dlpack__(self, **keywords): raise BufferError('not today')
    """)
    @test message(() -> CPython.import_of(from_dlpack, "Raises()")) == "Python raised BufferError: not today"
    @test endswith(message(() -> from_dlpack([1.0])), "expected a Python object (PyRef), found Array{Float64,1}")
    run_python("""
    class Old:
        calls = 0
        def __init__(self, a): self.a = a
        def __dlpack__(self, stream=None):
            Old.calls += 1
            return self.a.__dlpack__()
    """)
    @test CPython.import_of(from_dlpack, "Old(np.arange(2))") == [0, 1]
    @test int("Old.calls") == 1
    # A detached thread does not read the object.
    CPython.detached() do
        @test occursin("PyGILState_Ensure", message(() -> from_dlpack(PyRef(Ptr{Cvoid}(16)))))
    end
end

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

@testset "errors name the type, ndim or layout that differs" begin
    o = py("a")
    message(work) = try work(); "" catch e; e isa ArgumentError ? e.msg : rethrow() end
    @test message(() -> from_dlpack(Matrix{Int32}, RowMajor, o)) ==
          "dtype: expected int32 for Int32, found float32"
    @test message(() -> from_dlpack(Vector{Float32}, RowMajor, o)) ==
          "ndim: expected 1, found 2"
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
