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
