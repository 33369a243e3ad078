# DLPack.jl's own tests of this Python package, as DLPack.jl is installed, run by DLBridge: its names stand for
# DLBridge's as the guide's table says, and ADAPTED has every line that is changed.

# Names of DLPack.jl that have another one in DLBridge, by the table "Coming from DLPack.jl" of docs/julia.md.
module DLPack
import DLBridge
using DLBridge: from_dlpack, wrap, share, dtype

struct Fields
    ndim::Int
    dtype::DLBridge.DType
    device::DLBridge.Device
end
struct Manager
    dl_tensor::Fields
end
function DLManagedTensor(capsule)
    array = from_dlpack(capsule)
    return Manager(Fields(ndims(array), dtype(eltype(array)), DLBridge.device_of(array)))
end

struct Dtypes end
Base.getindex(::Dtypes, T) = dtype(T)
jltypes_to_dtypes() = Dtypes()
device_type(tensor::Fields) = tensor.device.kind
const kDLCPU, kDLCUDA = 1, 2
end

# What a test of DLPack.jl has, and what replaces it, by package. All keywords are in the guide.
const ADAPTED = Dict(
    :PyCall => [
        # There is no CUDA here. The tests use it on its own devices only.
        "using CUDA" => "",
        # JAX's arrays are read-only. The tests write to them all the same.
        "DLPack.from_dlpack(v)" => "DLPack.from_dlpack(v; write = false)",
        "ColMajor, v)" => "ColMajor, v; write = false)",
        "RowMajor, w)" => "RowMajor, w; write = false)",
        # JAX 0.7 has no such function any more.
        "dlpack.to_dlpack(o)" => "o.__dlpack__()",
        # JAX copies what is not aligned.
        "v = UInt[1, 2, 3]" => "v = DLBridge.aligned_array(UInt[1, 2, 3])",
    ],
    :PythonCall => [
        "using CUDA" => "",
        # The version of a build of PyTorch ends in `+cpu` or `+cu132`.
        "__version__)\", '.')" => "__version__)\", ['.', '+'])",
    ],
)

"The installed package's tests as an expression, adapted. Every change must apply."
function adapted_tests()
    file = joinpath(dirname(Base.find_package("DLPack")), "..", "test", lowercase(string(BRIDGE)) * ".jl")
    text = read(file, String)
    for (found, replacement) in ADAPTED[BRIDGE]
        occursin(found, text) || error("$file has no `$found`")
        text = replace(text, found => replacement)
    end
    # `@testitem name begin ... end`, which TestItemRunner runs in a module of its own.
    item = Meta.parse(text)
    item.args[1] === Symbol("@testitem") || error("$file is no test item")
    return item.args[end]
end

if Base.find_package("DLPack") === nothing
    skip("DLPack.jl's own tests", "not in the project of $BRIDGE")
elseif !value(Bool, "__import__('importlib.util').util.find_spec('$(BRIDGE === :PyCall ? "jax" : "torch")') is not None")
    skip("DLPack.jl's own tests", "no $(BRIDGE === :PyCall ? "JAX" : "PyTorch")")
else
    suite = Module(:Suite)
    Core.eval(suite, :(using Test, DLBridge, $BRIDGE; import DLBridge))
    Core.eval(suite, :(const DLPack = $DLPack))
    # Of Julia 1.6.
    VERSION < v"1.6" && Core.eval(suite, :(first(list, count) = list[1:min(count, end)]))
    Core.eval(suite, Expr(:toplevel, adapted_tests().args...))
end
