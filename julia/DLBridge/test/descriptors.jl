# Tensors that no installed framework exports: byte offsets, null strides, unknown types and devices.
# The tests build them, or the library does.

using DLBridge: from_dlpack

# DLManagedTensor of dlpack.h
mutable struct Legacy
    data::Ptr{Cvoid}
    device::DLBridge.Device
    ndim::Int32
    dtype::DLBridge.DType
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
    context::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
end

const DELETED = Ref(0)
delete(::Ptr{Cvoid}) = (DELETED[] += 1; nothing)

function capsule_of(tensor::Legacy)
    return PyRef(ccall(
        CPython.sym(:PyCapsule_New), Ptr{Cvoid}, (Ptr{Cvoid}, Cstring, Ptr{Cvoid}),
        pointer_from_objref(tensor), "dltensor", C_NULL,
    ))
end

@testset "a byte offset is applied, null strides are contiguous" begin
    numbers, shape = collect(Float32, 0:7), Int64[2, 3]
    tensor = Legacy(
        pointer(numbers), DLBridge.HOST, 2, DLBridge.dtype(Float32), pointer(shape), C_NULL, 8,
        C_NULL, @cfunction(delete, Cvoid, (Ptr{Cvoid},)),
    )
    GC.@preserve numbers shape tensor begin
        capsule = capsule_of(tensor)
        @test from_dlpack(capsule; copy = true) == [2 5; 3 6; 4 7]
        @test DELETED[] == 1
        drop(capsule)
        tensor.byte_offset = 4
        capsule = capsule_of(tensor)
        x = from_dlpack(capsule)
        @test x == [1 4; 2 5; 3 6]
        @test pointer(x) == pointer(numbers, 2)
        drop(capsule)
        @test DELETED[] == 1
        DLBridge.close(x)
        @test DELETED[] == 2
    end
end

@testset "a rejected tensor is still owned by its capsule" begin
    shape = Int64[-1]
    tensor = Legacy(C_NULL, DLBridge.HOST, 1, DLBridge.dtype(Int8), pointer(shape), C_NULL, 0, C_NULL, C_NULL)
    GC.@preserve shape tensor begin
        capsule = capsule_of(tensor)
        set("refused", capsule)
        error = try from_dlpack(capsule) catch e; e end
        @test error isa ArgumentError
        @test error.msg == "shape: axis 0: expected extent 0 or more, found -1"
        @test occursin("\"dltensor\"", str("refused"))
        run_python("del refused")
        drop(capsule)
    end
end

# What `from_dlpack` says to a tensor of some type on some device.
function refusal(dtype, device; take = from_dlpack)
    bytes, released = zeros(UInt8, 64), DELETED[]
    owner = @cfunction(delete, Cvoid, (Ptr{Cvoid},))
    shape, tensor, capsule = Int64[2], Ref{Ptr{Cvoid}}(C_NULL), Ref{Ptr{Cvoid}}(C_NULL)
    GC.@preserve bytes shape begin
        memory = DLBridge.Description(
            pointer(bytes), pointer(shape), C_NULL, 0, device, dtype, 1, C_NULL, owner, C_NULL)
        DLBridge.check(ccall(DLBridge.dlb_export[], Cint,
            (Ref{DLBridge.Description}, Ptr{Ptr{Cvoid}}), memory, tensor))
        DLBridge.check(ccall(DLBridge.dlb_into_capsule[], Cint,
            (Ptr{Cvoid}, Cint, Ptr{Ptr{Cvoid}}), tensor[], 1, capsule))
        error = try take(PyRef(capsule[])) catch e; e end
        drop(PyRef(capsule[]))
        @test error isa ArgumentError
        @test DELETED[] == released + 1
        return error.msg
    end
end

@testset "descriptors of C code are imported and exported" begin
    A = [1.0 2.0; 3.0 4.0]
    pointer = DLBridge.unsafe_share(view(A, :, 2:-1:1))
    @test DLBridge.shared_count() == 1
    x = DLBridge.unsafe_from_dlpack(pointer; layout = RowMajor)
    @test x == [2 1; 4 3]
    x[1, 1] = 20
    @test A[1, 2] == 20
    DLBridge.close(x)
    settle()
    @test DLBridge.shared_count() == 0
    @test_throws ArgumentError DLBridge.unsafe_from_dlpack(C_NULL)
end

@testset "newer types and devices are named" begin
    for (code, bits, word) in ((7, 8, "float8_e3m4"), (10, 8, "float8_e4m3fn"), (12, 8, "float8_e5m2"),
                               (15, 6, "float6_e2m3fn"), (17, 4, "float4_e2m1fn"), (4, 16, "bfloat16"),
                               (18, 32, "bcomplex32"), (99, 8, "code99:8"))
        @test occursin("found $word,", refusal(DLBridge.DType(code, bits, 1), DLBridge.HOST))
    end
    @test occursin("found float32x4,", refusal(DLBridge.DType(2, 32, 4), DLBridge.HOST))
    for (kind, word) in ((2, "cuda:1"), (8, "metal:1"), (17, "maia:1"), (18, "trn:1"), (19, "tpu:1"),
                         (21, "ascend:1"), (77, "kind77:1"))
        @test endswith(refusal(DLBridge.dtype(Float32), DLBridge.Device(kind, 1)), "found $word")
        typed = o -> from_dlpack(Vector{Float32}, ColMajor, o)
        @test endswith(refusal(DLBridge.dtype(Float32), DLBridge.Device(kind, 1); take = typed), "found $word")
    end
end

primitive type Tiny 8 end

@testset "tensors of a registered element type are imported" begin
    DLBridge.dtype(::Type{Tiny}) = DLBridge.DType(10, 8, 1)
    Base.invokelatest(DLBridge.register_dtype, Tiny)
    capsule = Base.invokelatest(DLBridge.share, [reinterpret(Tiny, 0x38)])
    x = Base.invokelatest(o -> from_dlpack(o; copy = true), capsule)
    @test x isa Vector{Tiny}
    @test reinterpret(UInt8, x[1]) == 0x38
    drop(capsule)
    delete!(DLBridge.JULIA_TYPES, DLBridge.DType(10, 8, 1))
    settle()
end
