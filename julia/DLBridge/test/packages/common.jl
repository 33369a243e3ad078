# Tests for both PyCall and PythonCall.

run_python("import gc, sys, numpy as np")

@testset "import, share, capsules" begin
    o = py("np.arange(6.0).reshape(2, 3)")
    @test o isa Object
    @test from_dlpack(o) == [0 3; 1 4; 2 5]
    @test (@inferred from_dlpack(Matrix{Float64}, RowMajor, o)) == [0 3; 1 4; 2 5]
    @test size(from_dlpack(o; layout = ColMajor())) == (2, 3)
    A = [1.0 2.0; 3.0 4.0]
    for p in (share(A, py("np.from_dlpack")), share(A, Object, py("np.from_dlpack")))
        @test p isa Object
        set("p", p)
        @test value(Bool, "type(p) is np.ndarray and p.tolist() == [[1, 3], [2, 4]]")
    end
    run_python("del p")
    for versioned in (true, false), capsule in (share(A; versioned = versioned), share(A, Object; versioned = versioned))
        @test capsule isa Object
        x = from_dlpack(capsule)
        @test x == A && pointer(x) == pointer(A)
    end
end

@testset "wrap accepts a Python or a Julia function" begin
    run_python("""
    class Old:
        def __init__(self, a): self.a = a
    def to_dlpack(o): return o.a.__dlpack__()
    old = Old(np.arange(6.0).reshape(2, 3))
    """)
    old, to_dlpack = py("old"), py("to_dlpack")
    in_julia = o -> DLBridge.python_call(Object, to_dlpack, o)
    for f in (to_dlpack, in_julia)
        x = wrap(old, f)
        # A legacy capsule has no read-only flag.
        @test !(x isa Matrix) && x == [0 3; 1 4; 2 5]
        @test wrap(old, f; layout = ColMajor) == [0 1 2; 3 4 5]
        @test wrap(Matrix{Float64}, RowMajor, old, f; write = false) == x
        @test wrap(Matrix{Float64}, RowMajor, old, f; copy = true) == x
        # The caller declares that the producer permits writing.
        y = wrap(old, f; assume_writable = true)
        @test y isa Matrix{Float64}
        y[1] = 10
        @test x[1] == 10
        y[1] = 0
    end
end

# The reference of Julia's wrapper keeps nothing once the consumer has dropped its array, so that no collection is needed.
@testset "an exported array is free when the consumer drops it" begin
    settle()
    before = DLBridge.shared_count()
    GC.enable(false)
    try
        run_python("forget = lambda o: np.from_dlpack(o).sum()")
        for _ in 1:10
            share(zeros(2_000_000), py("forget"))
        end
        DLBridge.drain()
        @test DLBridge.shared_count() == before
        @test_throws Exception share(zeros(2), py("lambda o: 1 / 0"))
        x = from_dlpack(py("np.arange(3.0)"))
        p = share(x, py("np.from_dlpack"))
        @test_throws ArgumentError DLBridge.close(x)
        DLBridge.release_object(p)
        @test DLBridge.close(x) === nothing
        # A Julia function may keep what it gets.
        kept = share(zeros(2), Object, identity)
        set("kept", kept)
        @test value(Float64, "np.from_dlpack(kept).sum()") == 0
    finally
        GC.enable(true)
        run_python("del kept")
    end
end

@testset "the error for a Julia array names the expected type" begin
    error = try from_dlpack([1.0]) catch e; e end
    @test error.msg == "object: expected a Python object ($Object), found Array{Float64,1}"
end

@testset "Python exceptions are thrown" begin
    error = try from_dlpack(py("'text'")) catch e; e end
    @test error isa ArgumentError && occursin("<class 'str'>", error.msg)
    @test_throws Exception share([1.0], py("lambda o: 1 / 0"))
end

const MANY = 100_000

@testset "100,000 imports and exports leak nothing" begin
    run_python("producer = np.ones(3)")
    producer, consumer = py("producer"), py("np.from_dlpack")
    before = value(Int, "sys.getrefcount(producer)")
    A = fill(2.0, 3)
    total = 0.0
    for _ in 1:MANY
        total += from_dlpack(producer)[1] + from_dlpack(Vector{Float64}, RowMajor, producer)[2]
        share(A, consumer)
    end
    @test total == 2 * MANY
    # Both packages drop Python's objects, exceptions with their frames among them, by finalizers.
    for _ in 1:5
        settle()
        run_python("gc.collect()")
    end
    @test DLBridge.shared_count() == 0
    @test DLBridge.pending_count() == 0
    @test value(Int, "sys.getrefcount(producer)") == before
    @test A == fill(2.0, 3)
end

# Element types of BFloat16s and DLFP8Types, where they are in the project.
if Base.find_package("BFloat16s") === nothing || Base.find_package("DLFP8Types") === nothing
    skip("BFloat16s and DLFP8Types", "not in the project of $BRIDGE")
else
    @eval using BFloat16s, DLFP8Types

    @testset "BFloat16s" begin
        @test DLBridge.julia_type(DLBridge.DType(4, 16, 1)) === BFloat16s.BFloat16
        if value(Bool, "__import__('importlib.util').util.find_spec('torch') is not None")
            run_python("import torch; ones = torch.ones(2, dtype=torch.bfloat16)")
            x = from_dlpack(py("ones"))
            @test x isa Vector{BFloat16s.BFloat16}
            @test Float32.(x) == [1, 1]
            x[1] = BFloat16s.BFloat16(3)
            @test value(Int, "int(ones[0])") == 3
        end
    end

    @testset "DLFP8Types" begin
        types = (DLFP8Types.Float8_E4M3FN, DLFP8Types.Float8_E4M3FNUZ, DLFP8Types.Float8_E5M2, DLFP8Types.Float8_E5M2FNUZ)
        for T in types
            x = from_dlpack(share([reinterpret(T, 0x38)]); copy = true)
            @test x isa Vector{T} && reinterpret(UInt8, x[1]) == 0x38
            @test endswith(DLBridge.name(DLBridge.dtype(T)), lowercase(string(nameof(T))))
        end
    end
    settle()
end

# A package that uses DLBridge and PyCall or PythonCall can be precompiled.
const USER = """
module UsesBoth
using DLBridge, $BRIDGE
there_and_back(A) = from_dlpack(DLBridge.share(A, $(BRIDGE === :PyCall ? "PyObject" : "Py"), identity))
end
"""

@testset "a package that uses DLBridge and $BRIDGE is precompiled" begin
    mktempdir() do folder
        mkpath(joinpath(folder, "UsesBoth", "src"))
        write(joinpath(folder, "UsesBoth", "Project.toml"), """
        name = "UsesBoth"
        uuid = "b2b7a5d4-3b57-4a5a-8f3e-$(lpad(string(abs(rand(Int32)); base = 16), 12, '0'))"

        [deps]
        DLBridge = "7f0a5a0e-6c1d-4b0b-9a3c-3f9f2f6d8f51"
        $BRIDGE = "$BRIDGE_UUID"
        """)
        write(joinpath(folder, "UsesBoth", "src", "UsesBoth.jl"), USER)
        # Twice: compiled, then from the cache.
        for _ in 1:2
            program = "using UsesBoth; A = [1.0 2.0]; x = UsesBoth.there_and_back(A); x[1] = 3; print(A[1])"
            path = join((folder, dirname(Base.active_project()), "@stdlib"), Sys.iswindows() ? ';' : ':')
            errors = joinpath(folder, "errors")
            command = `$(Base.julia_cmd()) --startup-file=no -e $program`
            printed = withenv("JULIA_LOAD_PATH" => path) do
                read(pipeline(ignorestatus(command); stderr = errors), String)
            end
            @test printed == "3.0"
            warnings = read(errors, String)
            @test !occursin("closed module", warnings) && !occursin("incremental compilation", warnings)
            printed == "3.0" || println(warnings)
        end
    end
end
