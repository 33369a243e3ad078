# Functions of linear algebra that Julia defines for plain arrays only. They get a copy; Julia copies an `Array` as well.

const AnyTensorMatrix = Union{TensorMatrix,Base.ReshapedArray{<:Any,2,<:StridedTensor}}

dense(x::AnyTensorMatrix) = elements(x)
dense(x) = x

for f in (:cholesky, :factorize, :lq, :schur, :svd, :svdvals)
    @eval LinearAlgebra.$f(A::AnyTensorMatrix; keywords...) = LinearAlgebra.$f(dense(A); keywords...)
end

for wrapper in (:Hermitian, :Symmetric)
    @eval LinearAlgebra.cholesky(A::LinearAlgebra.$wrapper{<:Any,<:AnyTensorMatrix}; keywords...) =
        LinearAlgebra.cholesky(LinearAlgebra.$wrapper(dense(parent(A)), Symbol(A.uplo)); keywords...)
end

for f in (:exp, :inv, :log, :sqrt)
    @eval Base.$f(A::AnyTensorMatrix) = $f(dense(A))
end

for f in (:lyap, :schur, :svd, :svdvals),
    (A, B) in ((AnyTensorMatrix, AnyTensorMatrix), (AnyTensorMatrix, StridedMatrix), (StridedMatrix, AnyTensorMatrix))

    @eval LinearAlgebra.$f(A::$A, B::$B; keywords...) = LinearAlgebra.$f(dense(A), dense(B); keywords...)
end
