# Sealed memory becomes Julia arrays. The C API makes it here, as another process would.

using Libdl

"A function of the C API that DLBridge itself does not call."
function c_function(name)
    loaded = filter(path -> occursin("dlbridge", basename(path)), Libdl.dllist())
    return Libdl.dlsym(Libdl.dlopen(first(loaded)), name)
end

"Seals arrays by their names, and passes the descriptor."
function with_sealed(f, named...)
    tensors = [DLBridge.exported(A, true, false) for (_, A) in named]
    names = [String(name) for (name, _) in named]
    sealed = Ref{Ptr{Cvoid}}(C_NULL)
    status = ccall(
        c_function(:dlb_sealed_copy), Cint, (Ptr{Cstring}, Ptr{Ptr{Cvoid}}, Csize_t, Ptr{Ptr{Cvoid}}),
        names, tensors, length(named), sealed,
    )
    foreach(DLBridge.release_now, tensors)
    DLBridge.check(status)
    try
        f(ccall(c_function(:dlb_sealed_descriptor), Cint, (Ptr{Cvoid},), sealed[]))
    finally
        ccall(c_function(:dlb_sealed_close), Cvoid, (Ptr{Cvoid},), sealed[])
    end
end

if !Sys.islinux()
    skip("sealed.jl", "sealed memory is for Linux")
else
    x, y = reshape(collect(Float32, 1:6), 2, 3), Int64[1, 2]

    @testset "arrays are read-only and outlive the descriptor" begin
        arrays = with_sealed(from_sealed, "x" => x, "y" => y)
        @test sort(collect(keys(arrays))) == ["x", "y"]
        @test arrays["x"] == x && arrays["y"] == y
        @test eltype(arrays["x"]) === Float32
        @test_throws Exception arrays["x"][1] = 7
    end

    @testset "writes to a private array change no sealed value" begin
        with_sealed("x" => x) do descriptor
            mine = from_sealed(RawFD(descriptor); private = true)["x"]
            @test mine isa Matrix{Float32}
            mine[1] = 7
            @test mine[1] == 7
            @test from_sealed(descriptor)["x"] == x
            @test from_sealed(descriptor; private = true)["x"] == x
            @test from_sealed(descriptor; copy = true)["x"] isa Matrix{Float32}
            @test from_sealed(descriptor; layout = ColMajor)["x"] == permutedims(x)
        end
    end

    @testset "other files are rejected" begin
        open("/dev/zero") do device
            @test_throws ArgumentError from_sealed(fd(device))
        end
        @test_throws ArgumentError from_sealed(-1)
        @test_throws ArgumentError from_sealed(1 << 20)
    end

    @testset "descriptors do not accumulate" begin
        count() = length(readdir("/proc/self/fd"))
        with_sealed("x" => x) do descriptor
            before = count()
            for _ in 1:1000
                from_sealed(descriptor)
            end
            @test count() == before
        end
    end
end
