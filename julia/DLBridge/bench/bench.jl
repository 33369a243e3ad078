# What an import and a share of a small array cost, next to calls by hand that do only what the
# protocol needs. Run by `cargo xtask bench julia`.

using DLBridge
include(joinpath(@__DIR__, "..", "test", "cpython.jl"))
include(joinpath(@__DIR__, "..", "test", "packages.jl"))
using .CPython: PyRef, drop, py, sym

include("measure.jl")

# The floor: `__dlpack__`, the capsule's pointer, its renaming, the deleter; no check, no array.
struct Floor
    dlpack::PyRef
    call::Ptr{Cvoid}
    pointer::Ptr{Cvoid}
    rename::Ptr{Cvoid}
    decref::Ptr{Cvoid}
end

const NAME = "dltensor"
const USED = "used_dltensor"
# Of DLManagedTensor, behind the descriptor and the context.
const DELETER_AT = 56

function (floor::Floor)()
    capsule = ccall(
        floor.call, Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{Cvoid}), floor.dlpack.pointer, C_NULL,
    )
    tensor = ccall(floor.pointer, Ptr{Cvoid}, (Ptr{Cvoid}, Cstring), capsule, NAME)
    ccall(floor.rename, Cint, (Ptr{Cvoid}, Cstring), capsule, USED)
    ccall(floor.decref, Cvoid, (Ptr{Cvoid},), capsule)
    deleter = unsafe_load(Ptr{Ptr{Cvoid}}(tensor + DELETER_AT))
    ccall(deleter, Cvoid, (Ptr{Cvoid},), tensor)
    return nothing
end

function main()
    reason = CPython.start()
    reason === nothing || return println("skipped\t", reason)
    CPython.has("numpy") || return println("skipped\tno numpy")
    DLBridge.register_object_type(PyRef)
    CPython.run_python("import numpy; a = numpy.zeros((2, 3), 'float32')")
    array, consumer, method = py("a"), py("numpy.from_dlpack"), py("a.__dlpack__")
    names = (:PyObject_CallObject, :PyCapsule_GetPointer, :PyCapsule_SetName, :Py_DecRef)
    floor = Floor(method, map(sym, names)...)

    println("julia\t", VERSION)
    measure(floor, "import", "by hand (ccall, legacy capsule)")
    measure(() -> DLBridge.from_dlpack(array), "import", "`from_dlpack(o)`")
    measure(
        () -> DLBridge.from_dlpack(Matrix{Float32}, RowMajor, array),
        "import", "`from_dlpack(Matrix{Float32}, RowMajor, o)`",
    )
    shared = zeros(Float32, 3, 2)
    given = DLBridge.share(shared, PyRef, identity)
    measure("share with NumPy", "`numpy.from_dlpack` alone") do
        drop(PyRef(ccall(sym(:PyObject_CallFunctionObjArgs), Ptr{Cvoid},
            (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), consumer.pointer, given.pointer, C_NULL)))
    end
    measure("share with NumPy", "`share(A, numpy.from_dlpack)`") do
        drop(DLBridge.share(shared, consumer))
    end
    measure("share without a consumer", "`share(A, type)`, the object alone") do
        drop(DLBridge.share(shared, PyRef, identity))
    end
    beside_dlpack()
end

# Outside of a command, where `@__DIR__` is the current folder.
const BESIDE = joinpath(@__DIR__, "packages.jl")

# In a process of its own: PyCall starts its own Python.
function beside_dlpack()
    reason = Packages.prepare()
    reason === nothing || return println(stderr, "not measured beside DLPack.jl: ", reason)
    Packages.in_project("PyCall") do julia
        run(pipeline(ignorestatus(`$julia $BESIDE`); stdout = stdout, stderr = stderr))
    end
    return nothing
end

main()
