# The examples of the repository's pages, run in their order with the package that they name: a block that uses PyCall
# or PythonCall begins the part of the page that is for it. `cargo xtask lint` checks that every page is run.

const REPOSITORY = joinpath(@__DIR__, "..", "..", "..", "..")

function pages()
    found = ["README.md"]
    for (folder, _, files) in walkdir(joinpath(REPOSITORY, "docs")), file in files
        endswith(file, ".md") && push!(found, relpath(joinpath(folder, file), REPOSITORY))
    end
    return found
end

function examples(page)
    text, package, found = read(joinpath(REPOSITORY, page), String), :PythonCall, String[]
    for block in eachmatch(r"^```julia\n(.*?)^```"ms, text)
        used = match(r"^using [^:\n]*\b(PyCall|PythonCall)\b"m, block[1])
        used === nothing || (package = Symbol(used[1]))
        package === BRIDGE && push!(found, block[1])
    end
    return found
end

@testset "$page" for page in pages()
    reader = Module(:Reader)
    for example in examples(page)
        @test (include_string(reader, example, page); true)
    end
end
@test length(examples(joinpath("docs", "julia.md"))) >= (BRIDGE === :PyCall ? 2 : 6)
settle()
