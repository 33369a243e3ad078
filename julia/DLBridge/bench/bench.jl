# What an import and a share of a small array cost, next to calls by hand that do only what the
# protocol needs. Run by `cargo xtask bench julia`.
# Invariant: each line is the best of several rounds in one process, with what one call allocates.

using DLBridge
include(joinpath(@__DIR__, "..", "test", "cpython.jl"))
using .CPython: PyRef, drop, py, sym

# Short rounds: on a busy machine, some go undisturbed.
const ROUNDS = 100
const CALLS = 1000

function measure(work, name)
    work()
    bytes = @allocated work()
    best = Inf
    for _ in 1:ROUNDS
        GC.gc(false)
        DLBridge.drain()
        started = time_ns()
        for _ in 1:CALLS
            work()
        end
        best = min(best, (time_ns() - started) / CALLS)
    end
    println(rpad(name, 44), lpad(round(Int, best), 6), " ns", lpad(bytes, 7), " bytes")
    return best
end

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
    reason === nothing || return println("skipped: ", reason)
    CPython.has("numpy") || return println("skipped: no numpy")
    DLBridge.register_object_type(PyRef)
    CPython.run_python("import numpy; a = numpy.zeros((2, 3), 'float32')")
    array, consumer, method = py("a"), py("numpy.from_dlpack"), py("a.__dlpack__")
    names = (:PyObject_CallObject, :PyCapsule_GetPointer, :PyCapsule_SetName, :Py_DecRef)
    floor = Floor(method, map(sym, names)...)

    println("Julia ", VERSION, ", NumPy float32 2 x 3")
    by_hand = measure(floor, "import by hand (ccall, legacy capsule)")
    untyped = measure(() -> DLBridge.from_dlpack(array), "from_dlpack(o)")
    typed = measure(
        () -> DLBridge.from_dlpack(Matrix{Float32}, RowMajor, array),
        "from_dlpack(Matrix{Float32}, RowMajor, o)",
    )
    shared = zeros(Float32, 3, 2)
    object = measure("share(A, type), object only") do
        drop(DLBridge.share(shared, PyRef, identity))
    end
    numpy = measure(() -> drop(DLBridge.share(shared, consumer)), "share(A, numpy.from_dlpack)")
    given = DLBridge.share(shared, PyRef, identity)
    consume = measure("numpy.from_dlpack(object) alone") do
        drop(PyRef(ccall(sym(:PyObject_CallFunctionObjArgs), Ptr{Cvoid},
            (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), consumer.pointer, given.pointer, C_NULL)))
    end
    println("import: ", round(untyped / by_hand; digits = 2), " and ",
        round(typed / by_hand; digits = 2), " times the floor; a share adds ",
        round(Int, numpy - consume), " ns to what NumPy needs")
end

main()
