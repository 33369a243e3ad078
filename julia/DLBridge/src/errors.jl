# Failures of the C API as Julia exceptions. An error that the caller can avoid is an ArgumentError that names the field.

"Python raised an exception; `message` holds its type and text."
struct PythonError <: Exception
    message::String
end

Base.showerror(io::IO, error::PythonError) = print(io, "Python raised ", error.message)

# dlb_status
const REFUSED_BY_ARGUMENT = 1:3
const RAISED_BY_PYTHON = 4

# The message is read before anything else can fail on this thread.
@noinline function throw_failure(status::Cint)
    message = unsafe_string(ccall(dlb_last_error.address, Cstring, ()))
    status in REFUSED_BY_ARGUMENT && throw(ArgumentError(message))
    status == RAISED_BY_PYTHON && throw(PythonError(message))
    error(message)
end

@inline check(status::Cint) = status == 0 ? nothing : throw_failure(status)
