# The same with the real PyCall, beside DLPack.jl, in a project that has both (see ../test/packages.jl).

using PyCall
using DLBridge: DLBridge, RowMajor
import DLPack
using LinearAlgebra: BLAS
include("measure.jl")

function main()
    np = pyimport("numpy")
    array = pycall(np.zeros, PyObject, (2, 3), "float32")
    shared = zeros(Float32, 3, 2)
    # DLPack.jl makes no `PyObject` of what PyCall converts.
    as_object = PyCall.pyfunction(o -> nothing, PyObject)
    path = "import with PyCall"
    measure(() -> DLPack.from_dlpack(array), path, "DLPack.jl, `from_dlpack(o)`")
    measure(() -> DLBridge.from_dlpack(array), path, "`from_dlpack(o)`")
    measure(() -> DLPack.from_dlpack(Matrix{Float32}, DLPack.RowMajor, array), path, "DLPack.jl, typed")
    measure(() -> DLBridge.from_dlpack(Matrix{Float32}, RowMajor, array), path, "typed")
    path = "share with PyCall"
    measure(() -> DLPack.share(shared, as_object), path, "DLPack.jl, an empty function")
    measure(() -> DLBridge.share(shared, as_object), path, "an empty function")
    measure(() -> DLBridge.share(shared, PyObject, identity), path, "the object alone")
    BLAS.set_num_threads(1)
    product = pycall(np.ones, PyObject, (600, 600))
    product.setflags(write = false)
    x = DLBridge.from_dlpack(product)
    y = Array(x)
    path = "600 x 600 by 600 x 600"
    measure(() -> y * y, path, "two `Matrix{Float64}`"; rounds = 10, calls = 3)
    measure(() -> x * x, path, "two read-only tensors"; rounds = 10, calls = 3)
end

main()
