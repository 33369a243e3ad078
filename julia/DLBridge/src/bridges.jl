# The functions that an extension (ext/) implements for its package: Python objects, device arrays.
# Invariant: without the package, each throws an error that names it.

"""
    DLBridge.python_pointer(o)

The `PyObject *` of `o`, as a borrowed `Ptr{Cvoid}`.
"""
python_pointer(o) = throw(ArgumentError(
    "object: expected a Python object" * (
        isempty(OBJECT_TYPES) ? ", found $(typeof(o)); load PythonCall or PyCall" :
        " ($(join(OBJECT_TYPES, " or "))), found $(typeof(o))"
    ),
))

"""
    DLBridge.python_object(P, pointer)

An object of type `P` that owns the new reference `pointer`.
"""
function python_object end

"""
    DLBridge.release_object(o)

Drops the reference that `o` holds, before Julia's garbage collector does. `o` must not be used afterwards.
"""
release_object(o) = nothing

"""
    DLBridge.python_call(P, f, object)

Calls `f`, a Python or Julia function, with `object::P`. A Python function's result is a `P`, not converted.
"""
python_call(::Type, f, object) = f(object)

"""
    DLBridge.use_python(handle)

Names the libpython whose functions are called, by its handle from `dlopen`. Needed where they are not
global names of the process. Only the first call has an effect.
"""
function use_python(handle::Ptr{Cvoid})
    lock(LOADING) do
        is_loaded() ? name_python(handle) : PYTHON[] == C_NULL && (PYTHON[] = handle)
    end
    return nothing
end

name_python(handle) = check(ccall(dlb_use_python.address, Cint, (Ptr{Cvoid},), handle))

# Types of Python objects, in the order in which their packages were loaded.
const OBJECT_TYPES = Any[]

"""
    DLBridge.register_object_type(P)

Registers `P` as a package's type of Python objects.
"""
register_object_type(P) = P in OBJECT_TYPES ? nothing : (push!(OBJECT_TYPES, P); nothing)

object_type(f) = any(P -> f isa P, OBJECT_TYPES) ? typeof(f) : only_object_type()

function only_object_type()
    length(OBJECT_TYPES) == 1 && return OBJECT_TYPES[1]
    isempty(OBJECT_TYPES) &&
        throw(ArgumentError("python: expected a package for it, found none; load PythonCall or PyCall"))
    throw(ArgumentError(
        "python: expected one package for it, found $(join(OBJECT_TYPES, " and ")); name the one to use, as in " *
        "share(A, $(OBJECT_TYPES[1]), from_dlpack)",
    ))
end

# Set by the extension of CUDA.
const USES_CUDA = Ref(false)

# The host can read managed memory, but must wait for the device first: CUDA.jl does that for a CuArray.
is_for_device(info) =
    info.device.kind == CUDA_KIND || info.device.kind == CUDA_MANAGED_KIND && USES_CUDA[]

"""
    DLBridge.device_array(Val(kind), A, tensor, info, request)

An array over memory on a device of this kind. It owns the tensor.
"""
device_array(::Val, A, tensor, info, request) = throw_device(info)

is_precompiling() = ccall(:jl_generating_output, Cint, ()) == 1

# Before Julia 1.9 there are no extensions of packages: their files are loaded by hand.
const EXTENSIONS = (
    "PyCall" => "438e738f-606a-5dbb-bf0a-cddfbfd45ab0",
    "PythonCall" => "6099a3de-0909-46bc-b1f4-468b9a2dfc0d",
    "CUDA" => "052768ef-5323-5732-b1bb-66c8b64840ba",
    "BFloat16s" => "ab4f0b2a-ad5b-11e8-123f-65d77653426b",
    "DLFP8Types" => "f4c16678-4a16-415b-82ef-ed337c5d6c7c",
)

@static if isdefined(Base, :get_extension)
    load_bridges() = nothing
else
    function load_bridges()
        # While a package that uses this one is precompiled, this module is closed; its `__init__` runs again
        # when that package is loaded.
        is_precompiling() && return nothing
        push!(Base.package_callbacks, load_bridge)
        foreach(load_bridge, collect(keys(Base.loaded_modules)))
        return nothing
    end

    # Called by Julia after each package that it loads.
    function load_bridge(package::Base.PkgId)
        is_ours = any(EXTENSIONS) do (name, uuid)
            package == Base.PkgId(Base.UUID(uuid), name)
        end
        is_ours || return nothing
        name, loaded = package.name, Base.loaded_modules[package]
        isdefined(DLBridge, Symbol(name)) && return nothing
        Base.eval(DLBridge, :(const $(Symbol(name)) = $loaded))
        Base.include(DLBridge, joinpath(@__DIR__, "..", "ext", "DLBridge$(name)Ext.jl"))
        return nothing
    end
end
