# The examples of the repository's pages, run in their order with a stand-in for PyCall.
# `cargo xtask lint` sees to it that there are none in other pages.

if isdefined(Base, :get_extension)
    skip("the guide's examples", "extensions need PyCall in the environment")
else
    root = joinpath(@__DIR__, "..", "..", "..")
    pages = ["README.md"]
    for (folder, _, files) in walkdir(joinpath(root, "docs")), file in files
        endswith(file, ".md") && push!(pages, relpath(joinpath(folder, file), root))
    end
    @testset "$page" for page in pages
        text = read(joinpath(root, page), String)
        examples = [String(found[1]) for found in eachmatch(r"^```julia\n(.*?)^```"ms, text)]
        page == joinpath("docs", "julia.md") && @test length(examples) >= 6
        reader = Module(:Reader)
        for example in examples
            @test (include_string(reader, example, page); true)
        end
    end
    settle()
end
