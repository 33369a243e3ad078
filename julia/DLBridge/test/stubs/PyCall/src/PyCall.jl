# A stand-in for PyCall: the names that DLBridge and the guide use, over CPython in this process.
module PyCall

export PyObject, pycall, pyimport

struct PyObject_struct end

const PyPtr = Ptr{PyObject_struct}

# References are given back by hand, in tests.
struct PyObject
    o::PyPtr
end

PyPtr(o::PyObject) = getfield(o, :o)

# The tests' module CPython, which they set.
const CPYTHON = Ref{Any}(nothing)

pycall(f::PyObject, ::Type{PyObject}, arguments...; keywords...) = f(arguments...; keywords...)

function evaluate(code)
    return PyObject(PyPtr(CPYTHON[].py(code).pointer))
end

function bind(name, o::PyObject)
    CPYTHON[].set(name, CPYTHON[].PyRef(Ptr{Cvoid}(PyPtr(o))))
    return name
end

function pyimport(name)
    CPYTHON[].run_python("import $name")
    return evaluate("__import__('sys').modules['$name']")
end

Base.getproperty(o::PyObject, name::Symbol) = evaluate("getattr($(bind("_stub", o)), '$name')")

# Arguments are objects, or plain values that Python writes as Julia does.
literal(value, name) = value isa PyObject ? bind(name, value) : value isa Bool ? (value ? "True" : "False") : repr(value)

function (f::PyObject)(arguments...; keywords...)
    words = [literal(value, "_stub$k") for (k, value) in enumerate(arguments)]
    append!(words, ["$key=$(literal(value, "_stub_$key"))" for (key, value) in keywords])
    return evaluate("$(bind("_stub", f))($(join(words, ", ")))")
end

Base.string(o::PyObject) = CPYTHON[].str(bind("_stub", o))

end
