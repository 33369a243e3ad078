# CPython in this process: the part of PyCall or PythonCall that the tests need.
# References are dropped by hand, because a finalizer would need the GIL.
module CPython

using Libdl
import DLBridge

export PyRef, drop, int, py, run_python, set, str, truth

"A reference to a Python object."
struct PyRef
    pointer::Ptr{Cvoid}
end

const QUESTIONS = """
import sys, sysconfig
print(sysconfig.get_config_var('LIBDIR') or '')
print(sysconfig.get_config_var('LDLIBRARY') or '')
print('\\n'.join(path for path in sys.path if path))
"""

const LIBRARY = Ref{Ptr{Cvoid}}(C_NULL)
const GLOBALS = Ref{Ptr{Cvoid}}(C_NULL)

sym(name) = Libdl.dlsym(LIBRARY[], name)

"Starts Python; returns the reason if it cannot."
function start()
    python = get(ENV, "DLBRIDGE_PYTHON", "python3")
    answers = try
        readlines(`$python -c $QUESTIONS`)
    catch error
        return "no Python: $error"
    end
    library = joinpath(answers[1], answers[2])
    handle = Libdl.dlopen(library, Libdl.RTLD_LAZY | Libdl.RTLD_GLOBAL; throw_error = false)
    handle === nothing && return "no shared libpython at $library"
    LIBRARY[] = handle
    ccall(sym(:Py_InitializeEx), Cvoid, (Cint,), 0)
    main = ccall(sym(:PyImport_AddModule), Ptr{Cvoid}, (Cstring,), "__main__")
    GLOBALS[] = ccall(sym(:PyModule_GetDict), Ptr{Cvoid}, (Ptr{Cvoid},), main)
    paths = join(repr.(answers[3:end]), ", ")
    run_python("import sys; sys.path[:] = [$paths]")
    return nothing
end

function check(pointer::Ptr{Cvoid})
    pointer == C_NULL || return pointer
    ccall(sym(:PyErr_Print), Cvoid, ())
    error("Python raised")
end

evaluate(code, start) = check(ccall(
    sym(:PyRun_String), Ptr{Cvoid}, (Cstring, Cint, Ptr{Cvoid}, Ptr{Cvoid}),
    code, start, GLOBALS[], GLOBALS[],
))

drop(o::PyRef) = ccall(sym(:Py_DecRef), Cvoid, (Ptr{Cvoid},), o.pointer)

# Py_file_input, Py_eval_input
run_python(code) = (drop(PyRef(evaluate(code, 257))); nothing)
py(code) = PyRef(evaluate(code, 258))

"Binds a name in Python to an object."
function set(name, o::PyRef)
    ccall(sym(:PyDict_SetItemString), Cint, (Ptr{Cvoid}, Cstring, Ptr{Cvoid}), GLOBALS[], name, o.pointer)
    return nothing
end

"The value of an expression as a Julia value."
function int(code)
    o = py(code)
    value = ccall(sym(:PyLong_AsLongLong), Clonglong, (Ptr{Cvoid},), o.pointer)
    drop(o)
    return Int(value)
end

function str(code)
    o = py("str($code)")
    text = unsafe_string(ccall(sym(:PyUnicode_AsUTF8), Cstring, (Ptr{Cvoid},), o.pointer))
    drop(o)
    return text
end

truth(code) = int("int(bool($code))") == 1

has(name) = truth("__import__('importlib.util').util.find_spec('$name') is not None")

"Imports what an expression gives, and drops the object at once."
function import_of(import_it, code)
    o = py(code)
    try
        return import_it(o)
    finally
        drop(o)
    end
end

"Runs `work` detached, so that other threads may hold the GIL."
function detached(work)
    state = ccall(sym(:PyEval_SaveThread), Ptr{Cvoid}, ())
    try
        return work()
    finally
        ccall(sym(:PyEval_RestoreThread), Cvoid, (Ptr{Cvoid},), state)
    end
end

DLBridge.python_pointer(o::PyRef) = o.pointer
DLBridge.python_object(::Type{PyRef}, pointer::Ptr{Cvoid}) = PyRef(pointer)

DLBridge.release_object(o::PyRef) = drop(o)

"A function's result, as a new reference."
call(f::PyRef, object::PyRef) = check(ccall(
    sym(:PyObject_CallFunctionObjArgs), Ptr{Cvoid},
    (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), f.pointer, object.pointer, C_NULL,
))

"The same, of a function without arguments."
call0(f::PyRef) = check(ccall(sym(:PyObject_CallObject), Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{Cvoid}), f.pointer, C_NULL))

struct Raised <: Exception
    text::String
end

function DLBridge.python_call(::Type{PyRef}, f::PyRef, object::PyRef)
    result = ccall(
        sym(:PyObject_CallFunctionObjArgs), Ptr{Cvoid},
        (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}), f.pointer, object.pointer, C_NULL,
    )
    result == C_NULL || return PyRef(result)
    ccall(sym(:PyErr_Clear), Cvoid, ())
    throw(Raised("the consumer raised"))
end

end
