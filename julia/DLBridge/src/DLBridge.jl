"""
Arrays of Python and Julia over the same memory, by DLPack.

| I have | I want | call |
| --- | --- | --- |
| a Python array | a Julia array over it | [`from_dlpack`](@ref)`(o)` |
| the same, of a type that I know | that type, inferred | `from_dlpack(Matrix{Float32}, RowMajor, o)` |
| a function that makes capsules | the same | [`wrap`](@ref)`(o, to_dlpack)` |
| sealed memory of another process | Julia arrays over it | [`from_sealed`](@ref)`(descriptor)` |
| a Julia array | a Python array over it | [`share`](@ref)`(A, from_dlpack)` |
| a Julia array | a capsule | `share(A)` |
| an array to be made | memory that JAX shares | [`DLBridge.aligned_array`](@ref)`(T, dims...)` |
| an imported array | to release its memory now | [`DLBridge.close`](@ref)`(x)` |
"""
module DLBridge

using Libdl
using LinearAlgebra: LinearAlgebra, Adjoint, Transpose, dot, mul!
using Serialization: Serialization, AbstractSerializer, deserialize, serialize

export RowMajor, ColMajor, from_dlpack, from_sealed

include("library.jl")
include("errors.jl")
include("dtypes.jl")
include("layouts.jl")
include("strided.jl")
include("releases.jl")
include("closing.jl")
include("copies.jl")
include("memory.jl")
include("views.jl")
include("products.jl")
include("bulk.jl")
include("factorizations.jl")
include("imports.jl")
include("sealed.jl")
include("shares.jl")
include("bridges.jl")

# The library is loaded by the first call that needs it (see library.jl).
__init__() = load_bridges()

end
