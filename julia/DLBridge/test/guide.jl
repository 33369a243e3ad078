# The examples of docs/julia.md, run in their order with a stand-in for PyCall.

if isdefined(Base, :get_extension)
    skip("the guide's examples", "extensions need PyCall in the environment")
else
    examples = let text = read(joinpath(@__DIR__, "..", "..", "..", "docs", "julia.md"), String)
        [String(block[1]) for block in eachmatch(r"^```julia\n(.*?)^```"ms, text)]
    end

    @testset "docs/julia.md" begin
        @test length(examples) >= 6
        guide = Module(:Guide)
        for example in examples
            @test (include_string(guide, example, "docs/julia.md"); true)
        end
    end
    settle()
end
