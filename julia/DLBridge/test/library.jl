# Where the C library is looked for.

"What `library_candidates()` says in a process of its own, with a fake of the binary package in its environment."
function candidates(; binary_package, chosen)
    mktempdir() do folder
        if binary_package
            mkpath(joinpath(folder, "dlbridge_jll", "src"))
            write(joinpath(folder, "dlbridge_jll", "Project.toml"), """
            name = "dlbridge_jll"
            uuid = "28d3f3c4-e17d-5f11-bcbf-937386dbce4f"
            """)
            write(joinpath(folder, "dlbridge_jll", "src", "dlbridge_jll.jl"), """
            module dlbridge_jll
            const libdlbridge_path = $(repr(DLBridge.library_candidates()[1]))
            end
            """)
        end
        separator = Sys.iswindows() ? ';' : ':'
        program = "using DLBridge; foreach(println, DLBridge.library_candidates())"
        project = dirname(@__DIR__)
        withenv("JULIA_LOAD_PATH" => join((folder, project, "@stdlib"), separator), "DLBRIDGE_LIBRARY" => chosen) do
            readlines(`$(Base.julia_cmd()) --startup-file=no -e $program`)
        end
    end
end

@testset "a chosen file comes before the binary package, and that before the repository" begin
    library = DLBridge.library_candidates()[1]
    @test candidates(; binary_package = true, chosen = library) == [library]
    @test candidates(; binary_package = true, chosen = nothing) == [library]
    @test DLBridge.binary_package_library() == ""
    file = Sys.iswindows() ? "dlbridge_capi.dll" : "libdlbridge." * (Sys.isapple() ? "dylib" : "so")
    found = withenv(DLBridge.library_candidates, "DLBRIDGE_LIBRARY" => nothing)
    @test last(found) == file && endswith(first(found), joinpath("target", "capi", "lib", file))
end
