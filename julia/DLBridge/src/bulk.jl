# Functions over all elements, by Julia's methods for plain arrays: each call checks once that the memory is open, not each
# element. Broadcasts have a style of their own, which replaces tensors by arrays over the same memory.
# Invariant: the arrays are only read, and only until the call returns.

# An array for functions whose result does not depend on the order of the elements: row-major memory in Python's order of
# axes is read from first to last.
function in_any_order(x::StridedTensor)
    is_plain_element(x) && x.strides == reverse(Base.size_to_strides(1, reverse(x.size)...)) || return in_place(x)
    return plain_array(x.pointer, reverse(x.size))
end

# Calls a function with an array over the memory of `x`, or its method for all arrays: a copy of a broadcast tensor may be
# larger than all memory.
macro by_array(call, types, array_of = :in_place)
    keywords = call.args[2] isa Expr && call.args[2].head === :parameters ? call.args[2:2] : []
    name, arguments = call.args[1], call.args[(2 + length(keywords)):end]
    replaced = map(argument -> argument === :x ? :array : argument, arguments)
    return esc(quote
        with_array(x, $array_of) do array
            array === nothing || return $(Expr(:call, name, keywords..., replaced...))
            return $(Expr(:call, :invoke, keywords..., name, types, arguments...))
        end
    end)
end

for f in (:any, :all, :count)
    @eval function Base.$f(f::F, x::StridedTensor; dims = :) where {F<:Function}
        dims isa Colon && return @by_array $f(f, x) Tuple{Function,AbstractArray} in_any_order
        return @by_array $f(f, x; dims = dims) Tuple{Function,AbstractArray}
    end
end

for f in (:filter, :findfirst, :findlast)
    @eval Base.$f(f::F, x::StridedTensor) where {F<:Function} = @by_array $f(f, x) Tuple{Function,AbstractArray}
end

Base.map(f::F, x::StridedTensor) where {F} = @by_array map(f, x) Tuple{Any,AbstractArray}
Base.map(f::F, x::StridedTensor, y::StridedTensor) where {F} =
    with_array(y) do second
        second === nothing && return invoke(map, Tuple{Any,AbstractArray,AbstractArray}, f, x, y)
        return @by_array map(f, x, second) Tuple{Any,AbstractArray,AbstractArray}
    end
Base.in(value, x::StridedTensor) = @by_array in(value, x) Tuple{Any,AbstractArray}

# A comprehension.
Base.collect(each::Base.Generator{<:StridedTensor}) = with_array(each.iter) do array
    array === nothing ? invoke(collect, Tuple{Base.Generator}, each) : collect(Base.Generator(each.f, array))
end

Base.foreach(f::F, x::StridedTensor) where {F} = @by_array foreach(f, x) Tuple{Any,Any}
Base.mapslices(f, x::StridedTensor; dims) = @by_array mapslices(f, x; dims = dims) Tuple{Any,AbstractArray}
Base.circshift(x::StridedTensor, shift::Real) = @by_array circshift(x, shift) Tuple{AbstractArray,Real}

for f in (:rotl90, :rotr90, :rot180)
    @eval Base.$f(x::StridedTensor{<:Any,2}) = @by_array $f(x) Tuple{AbstractMatrix}
end

for wrapper in (:Transpose, :Adjoint)
    @eval Base.copy(A::$wrapper{<:Any,<:StridedTensor{<:Any,2}}) = GC.@preserve A copy(plain(A))
end

for f in (:findmax, :findmin, :argmax, :argmin, :diff, :reverse, :sortperm)
    @eval Base.$f(x::StridedTensor{<:Any,1}; keywords...) = @by_array $f(x; keywords...) Tuple{AbstractVector}
end

for f in (:vcat, :hcat)
    @eval Base.$f(x::StridedTensor{T}, more::StridedTensor{T}...) where {T} =
        GC.@preserve x more $f(plain(x), map(plain, more)...)
end

Base.:(==)(x::StridedTensor, y::Array) = @by_array ==(x, y) Tuple{AbstractArray,AbstractArray}
Base.:(==)(y::Array, x::StridedTensor) = @by_array ==(y, x) Tuple{AbstractArray,AbstractArray}
Base.:(==)(x::StridedTensor, y::StridedTensor) = with_array(y) do second
    second isa Array ? x == second : invoke(==, Tuple{AbstractArray,AbstractArray}, x, y)
end

# `Array`, `collect` and `convert` come here.
function Base.copyto!(destination::Array, x::StridedTensor)
    array = in_place(x)
    array === nothing && return invoke(copyto!, Tuple{AbstractArray,AbstractArray}, destination, x)
    GC.@preserve x copyto!(destination, array)
    return destination
end

const Selection = Union{Colon,AbstractUnitRange{Int},Int}

Base.@propagate_inbounds Base.getindex(x::StridedTensor{<:Any,N}, indices::Vararg{Selection,N}) where {N} =
    elements(view(x, indices...))

struct TensorStyle{N} <: Broadcast.AbstractArrayStyle{N} end
TensorStyle{M}(::Val{N}) where {M,N} = TensorStyle{N}()

Base.BroadcastStyle(::Type{A}) where {A<:StridedTensor} = TensorStyle{ndims(A)}()
Base.BroadcastStyle(::TensorStyle{M}, ::TensorStyle{N}) where {M,N} = TensorStyle{max(M, N)}()
Base.BroadcastStyle(::TensorStyle{M}, ::Broadcast.DefaultArrayStyle{N}) where {M,N} = TensorStyle{max(M, N)}()
# With sparse, structured and other arrays, a tensor counts as an `Array`.
Base.BroadcastStyle(::TensorStyle{N}, other::Broadcast.AbstractArrayStyle) where {N} =
    Broadcast.result_style(Broadcast.DefaultArrayStyle{N}(), other)

operand(x) = x
operand(x::StridedTensor) = (array = in_place(x); array === nothing ? x : array)
operand(x::Broadcast.Broadcasted{TensorStyle{N}}) where {N} =
    Broadcast.Broadcasted{Broadcast.DefaultArrayStyle{N}}(x.f, map(operand, x.args), x.axes)

roots!(roots, x) = roots
roots!(roots, x::StridedTensor) = push!(roots, x.root)
roots!(roots, x::Broadcast.Broadcasted) = foldl(roots!, x.args; init = roots)

# As `with_array`.
function with_operands(work, broadcast)
    roots = roots!(Root[], broadcast)
    foreach(root -> keep_open!(root, 1), roots)
    try
        return GC.@preserve roots work(operand(broadcast))
    finally
        foreach(root -> keep_open!(root, -1), roots)
    end
end

Base.copy(broadcast::Broadcast.Broadcasted{<:TensorStyle}) = with_operands(copy, broadcast)

# Base has a method for styles without axes.
for style in (:(TensorStyle{0}), :(<:TensorStyle))
    @eval Base.copyto!(destination::AbstractArray, broadcast::Broadcast.Broadcasted{$style}) =
        with_operands(plain -> copyto!(destination, plain), broadcast)
end
