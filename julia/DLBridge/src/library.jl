# The C API of dlbridge: where the library is found, its structs and functions, as in dlbridge.h.

const API_VERSION = 2

"The type of an element, as DLPack numbers it."
struct DType
    code::UInt8
    bits::UInt8
    lanes::UInt16
end

"A device, as DLPack numbers it."
struct Device
    kind::Int32
    id::Int32
end

# dlb_info
struct Info
    data::Ptr{Cvoid}
    byte_offset::UInt64
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    len::Csize_t
    flags::UInt64
    device::Device
    dtype::DType
    ndim::Int32
    is_host::UInt8
    is_row_major::UInt8
    is_column_major::UInt8
    has_stream::UInt8
    stream::Ptr{Cvoid}
end

# dlb_memory
struct Description
    struct_size::Csize_t
    data::Ptr{Cvoid}
    byte_offset::UInt64
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    flags::UInt64
    device::Device
    dtype::DType
    ndim::Int32
    token::Ptr{Cvoid}
    release::Ptr{Cvoid}
    queue::Ptr{Cvoid}
end

Description(data, shape, strides, flags, device, dtype, ndim, token, release, queue) = Description(
    sizeof(Description), data, 0, shape, strides, flags, device, dtype, ndim, token, release, queue,
)

const READ_ONLY = UInt64(1)
const HOST = Device(1, 0)
const CUDA_KIND = Int32(2)
const CUDA_MANAGED_KIND = Int32(13)

const FUNCTIONS = (
    :dlb_api_version, :dlb_last_error, :dlb_dtype_name, :dlb_device_name, :dlb_use_python,
    :dlb_from_python, :dlb_tensor_info, :dlb_copy, :dlb_release, :dlb_export, :dlb_into_capsule,
    :dlb_export_python, :dlb_from_versioned, :dlb_into_versioned, :dlb_queue_new, :dlb_queue_mute, :dlb_queue_take, :dlb_queue_release,
    :dlb_queue_drain, :dlb_queue_pending, :dlb_is_legacy_read_only, :dlb_sealed_open, :dlb_sealed_count,
    :dlb_sealed_name, :dlb_sealed_tensor, :dlb_sealed_private, :dlb_sealed_close,
)

# A function of the library, `f[]` its address. The first use of any loads the library.
mutable struct CFunction
    address::Ptr{Cvoid}
end

@inline function Base.getindex(f::CFunction)
    # Both, since another thread may be loading it.
    f.address != C_NULL && is_loaded() || load_library()
    return f.address
end

# Under its own name.
for name in FUNCTIONS
    @eval const $name = CFunction(C_NULL)
end

# The queue that other threads put tokens into, and finalizers tensors. It lives as long as Julia; null until the library
# is loaded.
const QUEUE = Ref{Ptr{Cvoid}}(C_NULL)
const LOADING = ReentrantLock()
is_loaded() = QUEUE[] != C_NULL

# The libpython that an extension named (see bridges.jl) before the library was loaded.
const PYTHON = Ref{Ptr{Cvoid}}(C_NULL)

# As `cargo xtask capi` installs it. A DLL keeps cargo's name, which its import library has inside.
const LIBRARY_FILE = Sys.iswindows() ? "dlbridge_capi.dll" : "libdlbridge." * Libdl.dlext

"""
Where the library is looked for: the file that `DLBRIDGE_LIBRARY` names, the preference `library`, the
package `dlbridge_jll`, what `cargo xtask capi` built in the repository or `CARGO_TARGET_DIR`, what the system's loader finds.
"""
function library_candidates()
    for chosen in (get(ENV, "DLBRIDGE_LIBRARY", ""), preferred_library(), binary_package_library())
        isempty(chosen) || return [chosen]
    end
    repository = normpath(joinpath(@__DIR__, "..", "..", ".."))
    # Relative to the folder of the command, as for cargo.
    built = abspath(get(ENV, "CARGO_TARGET_DIR", joinpath(repository, "target")))
    return [joinpath(built, "capi", "lib", LIBRARY_FILE), LIBRARY_FILE]
end

@static if isdefined(Base, :get_preferences)
    # base/loading.jl of Julia 1.6: the preferences of the active project. No test here runs this.
    preferred_library() =
        get(Base.get_preferences(Base.UUID("7f0a5a0e-6c1d-4b0b-9a3c-3f9f2f6d8f51")), "library", "")::String
else
    preferred_library() = ""
end

# Looked up by name, since a package that is not registered cannot be a dependency.
const BINARY_PACKAGE = Base.PkgId(Base.UUID("28d3f3c4-e17d-5f11-bcbf-937386dbce4f"), "dlbridge_jll")

function binary_package_library()
    Base.locate_package(BINARY_PACKAGE) === nothing && return ""
    return string(Base.invokelatest(getfield, Base.require(BINARY_PACKAGE), :libdlbridge_path))
end

function load_library()
    lock(LOADING) do
        is_loaded() && return nothing
        load_functions(open_library())
        PYTHON[] == C_NULL || name_python(PYTHON[])
        QUEUE[] = start_releases()
    end
    return nothing
end

function open_library()
    candidates = library_candidates()
    for candidate in candidates
        library = Libdl.dlopen(candidate, Libdl.RTLD_NOW; throw_error = false)
        library === nothing || return library
    end
    error(
        "library: expected dlbridge-capi, found none as $(join(candidates, " or ")); build it with " *
        "`cargo xtask capi`, or name it in DLBRIDGE_LIBRARY",
    )
end

function load_functions(library)
    version = Libdl.dlsym(library, :dlb_api_version; throw_error = false)
    found = version === nothing ? "none" : ccall(version, UInt32, ())
    # First, since an older library lacks some of the functions.
    version !== nothing && found >= API_VERSION || error(
        "library: expected API version $API_VERSION or newer, found $found in $(Libdl.dlpath(library)); " *
        "build it with `cargo xtask capi` of the same checkout",
    )
    for name in FUNCTIONS
        getfield(DLBridge, name).address = Libdl.dlsym(library, name)
    end
    return nothing
end
