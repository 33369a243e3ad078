# Products, reductions and `permutedims` of strided tensors, by Julia's methods for plain arrays.
# A strided tensor is not a `DenseArray`, because functions for those write to read-only memory without a check.
# Invariant: plain arrays over a tensor's memory are only read, and only until the call returns.

# An array for Julia's own methods, which may use BLAS: over the same memory where its strides allow it, else a copy.
plain(x) = x
plain(x::Transpose{<:Any,<:StridedTensor}) = transpose(plain(parent(x)))
plain(x::Adjoint{<:Any,<:StridedTensor}) = adjoint(plain(parent(x)))

function plain(x::StridedTensor)
    array = in_place(x)
    return array === nothing ? elements(x) : array
end

# An array over the same memory, or nothing where no strided array of Julia has these strides and elements.
in_place(x::StridedTensor) = is_plain_memory(x) ? plain_array(x.pointer, x.size) : nothing

function in_place(x::StridedTensor{<:Any,1})
    is_plain_memory(x) && return plain_array(x.pointer, x.size)
    step = x.strides[1]
    # BLAS counts a negative step from the other end.
    step > 0 && !isempty(x) && is_plain_element(x) || return nothing
    span = (length(x) - 1) * step + 1
    return view(plain_array(x.pointer, (span,)), 1:step:span)
end

# A matrix of which one axis is contiguous is part of a plain one, or of a transposed one.
function in_place(x::StridedTensor{<:Any,2})
    is_plain_memory(x) && return plain_array(x.pointer, x.size)
    is_plain_element(x) || return nothing
    (rows, columns), (down, across) = x.size, x.strides
    down == 1 && across >= rows && return plain_columns(x.pointer, rows, columns, across)
    across == 1 && down >= columns && return transpose(plain_columns(x.pointer, columns, rows, down))
    return nothing
end

plain_array(start, size) = unsafe_wrap(Array, start, size)

# The padding of the last column is not part of the tensor. The view leaves it out, as that of the other columns.
function plain_columns(start, rows, columns, step)
    (rows == step || columns <= 1) && return plain_array(start, (rows, columns))
    return view(plain_array(start, (step, columns)), 1:rows, :)
end

# Whether elements are read as those of an `Array`.
is_plain_element(x::StridedTensor{T}) where {T} = (check_open(x); x.is_aligned && T !== Bool)

# Calls `work` with an array over the same memory, or with `x` where there is none: a copy of a broadcast array may be larger
# than all memory. `close` refuses meanwhile, since `work` may call functions of the user.
function with_array(work, x::StridedTensor, array_of = in_place)
    keep_open!(x.root, 1)
    try
        return GC.@preserve x work(array_of(x))
    finally
        keep_open!(x.root, -1)
    end
end

function keep_open!(root, change)
    lock(ROOTS.lock)
    try
        root.shares += change
    finally
        unlock(ROOTS.lock)
    end
    return nothing
end

# Operations whose result does not depend on the order of the elements.
const COMMUTATIVE = Union{typeof(+),typeof(max),typeof(min),typeof(Base.add_sum)}

# `sum`, `prod`, `maximum`, `minimum`, `reduce` come here.
Base.mapreduce(f, op, x::StridedTensor; keywords...) =
    with_array(x, op isa COMMUTATIVE && get(keywords, :dims, :) isa Colon ? in_any_order : in_place) do array
    array === nothing || return mapreduce(f, op, array; keywords...)
    return invoke(mapreduce, Tuple{Any,Any,AbstractArray}, f, op, x; keywords...)
end

LinearAlgebra.norm(x::StridedTensor, p::Real = 2) = with_array(x, in_any_order) do array
    array === nothing || return LinearAlgebra.norm(array, p)
    return invoke(LinearAlgebra.norm, Tuple{Any,Real}, x, p)
end

Base.permutedims(x::StridedTensor, order) = GC.@preserve x permutedims(plain(x), order)

# Julia computes half of a product of an array and its own transpose, which is exactly symmetric; it needs
# both operands to be the same object.
plain_pair(A, B) = (plain(A), plain(B))

for (wrapper, wrap) in ((:Transpose, :transpose), (:Adjoint, :adjoint))
    @eval function plain_pair(A::$wrapper{<:Any,<:StridedTensor}, B::StridedTensor)
        b = plain(B)
        return (parent(A) === B ? $wrap(b) : plain(A), b)
    end
    @eval function plain_pair(A::StridedTensor, B::$wrapper{<:Any,<:StridedTensor})
        a = plain(A)
        return (a, parent(B) === A ? $wrap(a) : plain(B))
    end
end

function plain_mul!(C, A, B, α, β)
    GC.@preserve A B begin
        a, b = plain_pair(A, B)
        mul!(C, a, b, α, β)
    end
    return C
end

const TensorMatrix = StridedTensor{<:Any,2}
const TensorVector = StridedTensor{<:Any,1}

# Few methods, since each takes some 20 ms of `using DLBridge`.
wrapped(M) = (M, Transpose{<:Any,<:M}, Adjoint{<:Any,<:M})

for (matrix, other, vector) in (
    (TensorMatrix, Union{TensorMatrix,StridedMatrix}, Union{TensorVector,StridedVector}),
    (StridedMatrix, TensorMatrix, TensorVector),
)
    for A in wrapped(matrix), (b, result) in (map(B -> (B, AbstractMatrix), wrapped(other))..., (vector, AbstractVector))
        @eval LinearAlgebra.mul!(C::$result, A::$A, B::$b, α::Number, β::Number) = plain_mul!(C, A, B, α, β)
    end
end

for (x, y) in ((StridedTensor, StridedArray), (StridedArray, StridedTensor))
    @eval LinearAlgebra.dot(x::$x, y::$y) = GC.@preserve x y dot(plain(x), plain(y))
end

function LinearAlgebra.dot(x::StridedTensor, y::StridedTensor)
    GC.@preserve x y begin
        a, b = in_any_order(x), in_any_order(y)
        # In one order only if both have the axes of that order.
        is_same = a !== nothing && b !== nothing && size(a) == size(b) && is_reordered(x, a) == is_reordered(y, b)
        return is_same ? dot(a, b) : dot(plain(x), plain(y))
    end
end

# A square matrix has the size of its transpose.
is_reordered(x, array) = array isa Array && ndims(x) > 1 && !is_plain_memory(x)
