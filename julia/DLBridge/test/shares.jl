# Export of Julia arrays to NumPy: values, strides, read-only memory.

using DLBridge: share, from_dlpack

const TAKE = py("np.from_dlpack")

# Shares an array and calls `check` while Python knows it as `s`.
function shared(check, A; take = TAKE, kwargs...)
    o = share(A, take; kwargs...)
    set("s", o)
    drop(o)
    try
        return check()
    finally
        run_python("del s")
    end
end

const B = reshape(collect(1.0:24.0), 2, 3, 4)

@testset "strides of $(typeof(A))" for A in (
    B, B[:, :, 1], view(B, :, 2, :), view(B, 2:-1:1, :, 1:2:4), transpose(B[:, :, 1]),
    PermutedDimsArray(B, (3, 1, 2)), view(B, 1, 1, 1), reshape(view(B, :, :, 2:3), 3, 4),
    view(B, 1:0, :, 1), fill(3.0), transpose(B[:, 1, 1]),
)
    shared(A; layout = ColMajor) do
        @test collect(size(A)) == [int("s.shape[$k]") for k in 0:ndims(A)-1]
        for index in CartesianIndices(A)
            @test A[index] == int("int(s[($(join(Tuple(index) .- 1, ", ")))])")
        end
    end
    shared(A) do
        @test collect(reverse(size(A))) == [int("s.shape[$k]") for k in 0:ndims(A)-1]
        for index in CartesianIndices(A)
            @test A[index] == int("int(s[($(join(reverse(Tuple(index)) .- 1, ", ")))])")
        end
    end
end

@testset "element type $T" for (T, word) in (
    (Int8, "int8"), (UInt64, "uint64"), (Float16, "float16"), (Float32, "float32"), (Bool, "bool"),
    (ComplexF32, "complex64"), (ComplexF64, "complex128"),
)
    shared(T[1, 0, 1]) do
        @test str("s.dtype") == word
        @test truth("(s == np.array([1, 0, 1], '$word')).all()")
    end
end

@testset "memory is shared both ways" begin
    v = [1.0, 2.0, 3.0]
    shared(v) do
        v[2] = 20
        @test int("int(s[1])") == 20
        run_python("s[0] = -1")
        @test v[1] == -1
    end
end

@testset "the read-only flag is exported" begin
    shared([1, 2]; readonly = true) do
        @test !truth("s.flags.writeable")
    end
    run_python("r = np.arange(3); r.flags.writeable = False")
    x = CPython.import_of(from_dlpack, "r")
    shared(view(x, 2:3)) do
        @test !truth("s.flags.writeable")
        @test str("s") == "[1 2]"
    end
    @test_throws ArgumentError share([1]; readonly = true, versioned = false)
    @test_throws CPython.Raised share([1], py("lambda o: o.__dlpack__()"); readonly = true)
    settle()
end

@testset "versioned and legacy capsules" begin
    for versioned in (true, false)
        capsule = share([1, 2, 3]; versioned = versioned)
        set("capsule", capsule)
        @test occursin(versioned ? "\"dltensor_versioned\"" : "\"dltensor\"", str("capsule"))
        @test from_dlpack(capsule; copy = true) == [1, 2, 3]
        drop(capsule)
        run_python("del capsule")
    end
    settle()
    @test DLBridge.shared_count() == 0
end

@testset "an unconsumed capsule releases its array" begin
    foreach(drop, [share(zeros(2); versioned = versioned) for versioned in (true, false)])
    settle()
    @test DLBridge.shared_count() == 0
end

@testset "arguments of __dlpack__" begin
    run_python("def keep(o): return o")
    shared([1.0, 2.0]; take = py("keep")) do
        @test str("s.__dlpack_device__()") == "(1, 0)"
        for keywords in ("", "stream=None", "stream=-1", "copy=False", "max_version=None",
                         "dl_device=(1, 0)", "dl_device=(1, None)", "max_version=(1, 0), copy=True")
            @test truth("type(s.__dlpack__($keywords)).__name__ == 'PyCapsule'")
        end
        run_python("""
        def refusal(**keywords):
            try:
                s.__dlpack__(**keywords)
            except Exception as error:
                return type(error).__name__ + ': ' + str(error)
        """)
        @test startswith(str("refusal(stream=1)"), "BufferError: stream: expected None or -1 for cpu")
        @test startswith(str("refusal(dl_device=(2, 0))"), "BufferError: dl_device: expected cpu")
        @test startswith(str("refusal(other=1)"), "TypeError")
        @test startswith(str("refusal(max_version=3)"), "TypeError")
        @test truth("(np.from_dlpack(s) == np.from_dlpack(s, copy=True)).all()")
    end
end

@testset "a raising consumer leaks nothing" begin
    raise = py("lambda o: 1 / 0")
    @test_throws CPython.Raised share(zeros(3), raise)
    settle()
    @test DLBridge.shared_count() == 0
end

@testset "a vector that was shared $(VERSION < v"1.11" ? "cannot grow" : "grows elsewhere")" begin
    v = collect(1:4)
    o = share(v, TAKE)
    set("s", o)
    drop(o)
    for _ in 1:2
        if VERSION < v"1.11"
            @test_throws ErrorException append!(v, zeros(Int, 10_000))
        else
            append!(v, zeros(Int, 10_000))
            @test length(v) > 10_000
        end
        GC.gc()
        truth("'s' in globals()") && @test str("s") == "[1 2 3 4]"
        # That does not change when Python has dropped its array.
        run_python("s = None; del s")
        settle()
    end
    @test push!(copy(v), 5)[end] == 5
end
