# The search for the C library, and its version.

"The result of `library_candidates()` in a process of its own, with a fake of the binary package in its environment."
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

@testset "DLBRIDGE_LIBRARY is preferred to the binary package, and that to the repository" begin
    library = DLBridge.library_candidates()[1]
    @test candidates(; binary_package = true, chosen = library) == [library]
    @test candidates(; binary_package = true, chosen = nothing) == [library]
    @test DLBridge.binary_package_library() == ""
    file = Sys.iswindows() ? "dlbridge_capi.dll" : "libdlbridge." * (Sys.isapple() ? "dylib" : "so")
    found = withenv(DLBridge.library_candidates, "DLBRIDGE_LIBRARY" => nothing)
    @test last(found) == file && endswith(first(found), joinpath("target", "capi", "lib", file))
end

@testset "the library is loaded by the first call that needs it" begin
    program = """
    using DLBridge
    using DLBridge: StridedTensor, shared_count, pending_count, drain, is_loaded
    x = StridedTensor([1.0 2.0; 3.0 4.0])
    drain(); sum(x); deepcopy(x); close(x); shared_count(); pending_count()
    println(is_loaded())
    error = try DLBridge.unsafe_share([1.0]) catch e; e.msg end
    println(occursin("expected dlbridge-capi, found none as nowhere", error))
    ENV["DLBRIDGE_LIBRARY"] = $(repr(DLBridge.library_candidates()[1]))
    pointer = DLBridge.unsafe_share([1.0])
    println(is_loaded(), shared_count(), DLBridge.unsafe_from_dlpack(pointer))
    """
    lines = withenv("DLBRIDGE_LIBRARY" => "nowhere") do
        readlines(`$(Base.julia_cmd()) --startup-file=no --project=$(dirname(@__DIR__)) -e $program`)
    end
    @test lines == ["false", "true", "true1[1.0]"]
end

@testset "CARGO_TARGET_DIR is searched" begin
    folder = withenv(DLBridge.library_candidates, "DLBRIDGE_LIBRARY" => nothing, "CARGO_TARGET_DIR" => "elsewhere")[1]
    @test dirname(folder) == abspath("elsewhere", "capi", "lib")
end

# An older library lacks functions; the version is what its user can change.
if Sys.which("cc") === nothing
    skip("an older library", "no C compiler")
else
    @testset "the error for a library of API version $version names it" for (version, source) in (
        "1" => "unsigned dlb_api_version(void) { return 1; }", "none" => "int other;",
    )
        mktempdir() do folder
            code, file = joinpath(folder, "old.c"), joinpath(folder, "libold." * DLBridge.Libdl.dlext)
            write(code, source)
            run(`cc -shared -fPIC -o $file $code`)
            before = DLBridge.dlb_release[]
            library = DLBridge.Libdl.dlopen(file)
            error = try DLBridge.load_functions(library) catch e; sprint(showerror, e) end
            DLBridge.Libdl.dlclose(library)
            @test occursin("expected API version", error) && occursin("found $version in $file", error)
            @test DLBridge.dlb_release[] == before
        end
    end
end
