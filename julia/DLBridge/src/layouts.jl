# Which way round the axes of a tensor become dimensions.
# Strides as such do not belong here.
# Invariant: the same shape and strides always arrive the same way.

"How a tensor's axes become dimensions: [`RowMajor`](@ref) or [`ColMajor`](@ref)."
abstract type MemoryLayout end

"The last axis is the dense one, as in C and NumPy: dimensions are the axes reversed."
struct RowMajor <: MemoryLayout end

"The first axis is the dense one, as in Julia and Fortran: dimensions are the axes as they are."
struct ColMajor <: MemoryLayout end

is_reversed(::Type{RowMajor}) = true
is_reversed(::Type{ColMajor}) = false
is_reversed(layout::MemoryLayout) = is_reversed(typeof(layout))
is_reversed(layout) = throw(ArgumentError("layout: expected RowMajor or ColMajor, found $layout"))

# A tensor that is contiguous one way tells by itself; one that is contiguous both ways (an axis of one
# element, say) counts as row-major. Of other strides, those that grow with the axis are column-major.
function is_reversed(info::Info)
    info.is_row_major != 0 && return true
    info.is_column_major != 0 && return false
    last = typemin(Int64)
    for axis in 1:info.rank
        unsafe_load(info.shape, axis) == 1 && continue
        stride = abs(unsafe_load(info.strides, axis))
        stride < last && return true
        last = stride
    end
    return false
end
