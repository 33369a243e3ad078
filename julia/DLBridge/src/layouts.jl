# The order in which the axes of a tensor become dimensions. It depends on the shape and strides only.

"How a tensor's axes become dimensions: [`RowMajor`](@ref) or [`ColMajor`](@ref)."
abstract type MemoryLayout end

"The last axis is contiguous, as in C and NumPy: dimensions are the axes reversed."
struct RowMajor <: MemoryLayout end

"The first axis is contiguous, as in Julia and Fortran: dimensions are the axes in their order."
struct ColMajor <: MemoryLayout end

is_reversed(::Type{RowMajor}) = true
is_reversed(::Type{ColMajor}) = false
is_reversed(layout::MemoryLayout) = is_reversed(typeof(layout))
is_reversed(layout) = throw(ArgumentError("layout: expected RowMajor or ColMajor, found $layout"))

# A tensor that is contiguous in both orders (such as a matrix of one row) counts as row-major. Of tensors that are
# contiguous in neither, those whose strides grow with the axis count as column-major.
function is_reversed(info::Info)
    info.is_row_major != 0 && return true
    info.is_column_major != 0 && return false
    last = typemin(Int64)
    for axis in 1:info.ndim
        unsafe_load(info.shape, axis) == 1 && continue
        stride = abs(unsafe_load(info.strides, axis))
        stride < last && return true
        last = stride
    end
    return false
end
