# Projects with the real packages that DLBridge has extensions for, and the tests of folder packages/ in them.
# They come from the folder shared beside the repository (DLBRIDGE_JULIA_PACKAGES names another script), or from the
# General registry where Julia has it. Where neither is, these tests are skipped.
module Packages

const REPOSITORY = normpath(joinpath(@__DIR__, "..", "..", ".."))
# Outside of a command, where `@__DIR__` is the current folder.
const RUNNER = joinpath(@__DIR__, "packages", "runtests.jl")
const FOLDER = joinpath(REPOSITORY, "target", "julia-packages")
const SCRIPT = get(ENV, "DLBRIDGE_JULIA_PACKAGES", joinpath(REPOSITORY, "..", "shared", "tools", "julia-packages.sh"))
# Beside them, in both projects; DLPack.jl is measured beside this package.
const OTHERS = ("BFloat16s", "DLFP8Types", "DLPack", "Requires")

project(package) = joinpath(FOLDER, lowercase(package))
julia() = joinpath(Sys.BINDIR, Base.julia_exename())

# As it calls itself: `Sys.which` leaves a virtual environment by following its links.
function python()
    try
        return readchomp(`$(get(ENV, "DLBRIDGE_PYTHON", "python3")) -c "import sys; print(sys.executable)"`)
    catch
        return nothing
    end
end

has_registry() = any(DEPOT_PATH) do depot
    any(name -> ispath(joinpath(depot, "registries", name)), ("General", "General.toml", "General.tar.gz"))
end

"Runs a program of this Julia in a project, apart from the environment of these tests."
function in_project(work, package; depot = joinpath(FOLDER, "depot"))
    environment = Any[
        "JULIA_LOAD_PATH" => nothing, "JULIA_PROJECT" => project(package),
        "JULIA_PYTHONCALL_EXE" => python(), "JULIA_CONDAPKG_BACKEND" => "Null", "PYTHON" => python(),
    ]
    isdir(depot) && push!(environment, "JULIA_DEPOT_PATH" => depot * ":")
    return withenv(() -> work(`$(julia()) --startup-file=no`), environment...)
end

"Makes the projects; returns the reason if it cannot."
function prepare()
    python() === nothing && return "no Python"
    package_folder = dirname(@__DIR__)
    # PyCall is built for one Python; a change of this package's dependencies changes the projects.
    stamp = joinpath(FOLDER, "made-for.txt")
    made_for = read(`$(python()) -c "import sys; print(sys.prefix, sys.version)"`, String) *
               read(joinpath(package_folder, "Project.toml"), String)
    isfile(stamp) && read(stamp, String) == made_for && return nothing
    rm(FOLDER; recursive = true, force = true)
    if isfile(SCRIPT)
        command = `bash $SCRIPT $FOLDER $(julia()) $(python()) $package_folder`
        log = IOBuffer()
        succeeds = withenv("JULIA_LOAD_PATH" => nothing, "JULIA_PROJECT" => nothing) do
            success(pipeline(command; stdout = log, stderr = log))
        end
        succeeds || return "$SCRIPT failed: $(last_line(log))"
    elseif !has_registry()
        return "neither a registry nor $SCRIPT"
    end
    for package in ("PyCall", "PythonCall")
        vendored = filter(isdir, [joinpath(FOLDER, "packages", name) for name in OTHERS])
        registered = isempty(vendored) ? [package, OTHERS...] : String[]
        program = """
        using Pkg
        Pkg.develop([PackageSpec(path = path) for path in $(repr([package_folder; vendored]))])
        isempty($(repr(registered))) || Pkg.add($(repr(registered)))
        """
        log = IOBuffer()
        succeeds = in_project(package) do julia
            withenv("JULIA_PKG_OFFLINE" => isempty(vendored) ? nothing : "true") do
                success(pipeline(`$julia -e $program`; stdout = log, stderr = log))
            end
        end
        succeeds || return "the project of $package cannot be made: $(last_line(log))"
    end
    mkpath(FOLDER)
    write(stamp, made_for)
    return nothing
end

function last_line(log)
    lines = filter(!isempty, split(String(take!(log)), '\n'))
    return isempty(lines) ? "no message" : last(lines)
end

"Runs the tests with a package; they print their count themselves."
test(package) = in_project(package) do julia
    success(pipeline(`$julia $RUNNER $package`; stdout = stdout, stderr = stderr))
end

end
