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
