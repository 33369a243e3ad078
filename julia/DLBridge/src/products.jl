# Products of strided tensors, by the methods for plain arrays: BLAS, where it knows the type.
# A strided tensor is no `DenseArray`, since functions for those would write to read-only memory.
# Invariant: plain arrays over a tensor's memory are only read, and only until the product is made.

# The operand as a plain array: over the same memory where that is contiguous, else a copy.
plain(x) = x
plain(x::Transpose{<:Any,<:StridedTensor}) = transpose(plain(parent(x)))
plain(x::Adjoint{<:Any,<:StridedTensor}) = adjoint(plain(parent(x)))
plain(x::StridedTensor) = is_plain_memory(x) ? unsafe_wrap(Array, x.pointer, size(x)) : elements(x)

function plain_mul!(C, A, B, α, β)
    GC.@preserve A B mul!(C, plain(A), plain(B), α, β)
    return C
end

as_they_are_or_transposed(M) = (M, Transpose{<:Any,<:M}, Adjoint{<:Any,<:M})
const TENSORS = as_they_are_or_transposed(StridedTensor{<:Any,2})
const ARRAYS = as_they_are_or_transposed(StridedMatrix)

for A in (TENSORS..., ARRAYS...)
    for B in (A in TENSORS ? (TENSORS..., ARRAYS...) : TENSORS)
        @eval LinearAlgebra.mul!(C::AbstractMatrix, A::$A, B::$B, α::Number, β::Number) =
            plain_mul!(C, A, B, α, β)
    end
    for b in (A in TENSORS ? (StridedTensor{<:Any,1}, StridedVector) : (StridedTensor{<:Any,1},))
        @eval LinearAlgebra.mul!(c::AbstractVector, A::$A, b::$b, α::Number, β::Number) =
            plain_mul!(c, A, b, α, β)
    end
end

for (x, y) in (
    (StridedTensor{<:Any,1}, StridedTensor{<:Any,1}), (StridedTensor{<:Any,1}, StridedVector),
    (StridedVector, StridedTensor{<:Any,1}),
)
    @eval LinearAlgebra.dot(x::$x, y::$y) = GC.@preserve x y dot(plain(x), plain(y))
end
