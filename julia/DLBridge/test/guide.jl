# The examples of docs/julia.md and README.md, run in their order with a stand-in for PyCall.

if isdefined(Base, :get_extension)
    skip("the guide's examples", "extensions need PyCall in the environment")
else
    @testset "$page" for (page, least) in ("docs/julia.md" => 6, "README.md" => 1)
        text = read(joinpath(@__DIR__, "..", "..", "..", page), String)
        examples = [String(found[1]) for found in eachmatch(r"^```julia\n(.*?)^```"ms, text)]
        @test length(examples) >= least
        reader = Module(:Reader)
        for example in examples
            @test (include_string(reader, example, page); true)
        end
    end
    settle()
end
