# Products, reductions and `permutedims` of strided tensors, by Julia's methods for plain arrays.
# A strided tensor is not a `DenseArray`, because functions for those write to read-only memory without a check.
# Invariant: plain arrays over a tensor's memory are only read, and only until the call returns.

const Indices = Tuple{Vararg{Union{Integer,AbstractRange{<:Integer}}}}
# A view by integers and ranges, whose elements have strides of their own.
const TensorView{T,N} = SubArray{T,N,<:StridedTensor,<:Indices}
const ReshapedTensor{T,N} = Base.ReshapedArray{T,N,<:Union{StridedTensor,TensorView}}
const TensorLike{T,N} = Union{StridedTensor{T,N},TensorView{T,N},ReshapedTensor{T,N}}

root_of_tensor(x::StridedTensor) = x.root
root_of_tensor(x::AbstractArray) = root_of_tensor(parent(x))

# A view as a tensor.
strided(x::StridedTensor) = x

function strided(x::TensorView{T,N}) where {T,N}
    start, steps = memory(x)
    whole = parent(x)
    return StridedTensor{T,N}(start, size(x), steps, whole.is_readonly, whole.is_aligned, whole.root)
end

# An array for Julia's own methods, which may use BLAS: over the same memory where its strides allow it, else a copy.
plain(x) = x
plain(x::Transpose{<:Any,<:TensorLike}) = transpose(plain(parent(x)))
plain(x::Adjoint{<:Any,<:TensorLike}) = adjoint(plain(parent(x)))

function plain(x::TensorLike)
    array = in_place(x)
    return array === nothing ? elements(x) : array
end

# An array over the same memory, or nothing where no strided array of Julia has these strides and elements.
in_place(x::TensorView) = in_place(strided(x))

function in_place(x::ReshapedTensor)
    whole = strided(parent(x))
    return is_plain_memory(whole) ? plain_array(whole.pointer, size(x)) : nothing
end

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
function with_array(work, x::TensorLike)
    root = root_of_tensor(x)
    keep_open!(root, 1)
    try
        return GC.@preserve x work(in_place(x))
    finally
        keep_open!(root, -1)
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

# `sum`, `prod`, `maximum`, `minimum`, `reduce`, `count` come here.
Base.mapreduce(f, op, x::TensorLike; keywords...) = with_array(x) do array
    array === nothing || return mapreduce(f, op, array; keywords...)
    return invoke(mapreduce, Tuple{Any,Any,AbstractArray}, f, op, x; keywords...)
end

LinearAlgebra.norm(x::TensorLike, p::Real = 2) = with_array(x) do array
    array === nothing || return LinearAlgebra.norm(array, p)
    return invoke(LinearAlgebra.norm, Tuple{Any,Real}, x, p)
end

Base.permutedims(x::TensorLike, order) = GC.@preserve x permutedims(plain(x), order)

# Julia computes half of a product of an array and its own transpose, which is exactly symmetric; it needs
# both operands to be the same object.
plain_pair(A, B) = (plain(A), plain(B))

for (wrapper, wrap) in ((:Transpose, :transpose), (:Adjoint, :adjoint))
    @eval function plain_pair(A::$wrapper{<:Any,<:TensorLike}, B::TensorLike)
        b = plain(B)
        return (parent(A) === B ? $wrap(b) : plain(A), b)
    end
    @eval function plain_pair(A::TensorLike, B::$wrapper{<:Any,<:TensorLike})
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

as_they_are_or_transposed(M) = (M, Transpose{<:Any,<:M}, Adjoint{<:Any,<:M})
const TENSORS = as_they_are_or_transposed(TensorLike{<:Any,2})
const ARRAYS = as_they_are_or_transposed(StridedMatrix)

for A in (TENSORS..., ARRAYS...)
    for B in (A in TENSORS ? (TENSORS..., ARRAYS...) : TENSORS)
        @eval LinearAlgebra.mul!(C::AbstractMatrix, A::$A, B::$B, α::Number, β::Number) =
            plain_mul!(C, A, B, α, β)
    end
    for b in (A in TENSORS ? (TensorLike{<:Any,1}, StridedVector) : (TensorLike{<:Any,1},))
        @eval LinearAlgebra.mul!(c::AbstractVector, A::$A, b::$b, α::Number, β::Number) =
            plain_mul!(c, A, b, α, β)
    end
end

for (x, y) in ((TensorLike, TensorLike), (TensorLike, StridedArray), (StridedArray, TensorLike))
    @eval LinearAlgebra.dot(x::$x, y::$y) = GC.@preserve x y dot(plain(x), plain(y))
end
