# Functions of linear algebra that Julia defines for plain arrays only. They get a copy; Julia copies an `Array` as well.

const TensorMatrix = TensorLike{<:Any,2}

dense(x::TensorLike) = elements(x)
dense(x) = x

for f in (:cholesky, :factorize, :lq, :schur, :svd, :svdvals)
    @eval LinearAlgebra.$f(A::TensorMatrix; keywords...) = LinearAlgebra.$f(dense(A); keywords...)
end

for wrapper in (:Hermitian, :Symmetric)
    @eval LinearAlgebra.cholesky(A::LinearAlgebra.$wrapper{<:Any,<:TensorMatrix}; keywords...) =
        LinearAlgebra.cholesky(LinearAlgebra.$wrapper(dense(parent(A)), Symbol(A.uplo)); keywords...)
end

for f in (:exp, :inv, :log, :sqrt)
    @eval Base.$f(A::TensorMatrix) = $f(dense(A))
end

for f in (:lyap, :schur, :svd, :svdvals),
    (A, B) in ((TensorMatrix, TensorMatrix), (TensorMatrix, StridedMatrix), (StridedMatrix, TensorMatrix))

    @eval LinearAlgebra.$f(A::$A, B::$B; keywords...) = LinearAlgebra.$f(dense(A), dense(B); keywords...)
end
