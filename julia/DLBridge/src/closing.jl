# `close`, and the table it needs: which plain arrays are imports, and whether their memory is exported again.
# A strided tensor has its root in a field (see strided.jl).
# Invariants: the table is used under the lock of ROOTS. Finalizers do not touch it: they close a root,
# which a later call removes. What a root's `next` says never changes once the root is in the table.

# The roots of plain arrays, by the address of their memory: the newest, and through `next` the older ones.
const PLACES = Dict{UInt,Root}()
# The table is swept when it has this many addresses.
const SWEEP_AT = Ref(1024)
# Roots that are not in the table yet: most are closed before they are looked up.
const ARRIVALS = Root[]
const MOST_ARRIVALS = 1024

@static if VERSION >= v"1.11"
    # base/array.jl, base/genericmemory.jl of Julia 1.11: reshapes of an array share `ref.mem`, growing
    # replaces it. No test here runs this.
    root_of(array::Array) = array.ref.mem
    place_of(array::Array) = UInt(pointer(array.ref.mem))
else
    # Reshapes keep the array that they were made of alive.
    root_of(array::Array) = array
    place_of(array::Array) = UInt(pointer(array))
end

# Releases the tensor when the array and its reshapes are unreachable.
function own!(array::Array, tensor::Ptr{Cvoid})
    holder = root_of(array)
    root = Root(tensor, place_of(array), objectid(holder))
    finalizer(_ -> close_root(root), holder)
    lock(ROOTS.lock)
    try
        push!(ARRIVALS, root)
        length(ARRIVALS) < MOST_ARRIVALS || register_arrivals!()
    finally
        unlock(ROOTS.lock)
    end
    return nothing
end

# Puts the arrivals that are still open into the table.
function register_arrivals!()
    for root in ARRIVALS
        is_in_use(root) || continue
        root.next = first_in_use(get(PLACES, root.place, nothing))
        PLACES[root.place] = root
    end
    empty!(ARRIVALS)
    length(PLACES) < SWEEP_AT[] || sweep_places!()
    return nothing
end

# The newest root at an address.
function root_at(place::UInt)
    isempty(ARRIVALS) || register_arrivals!()
    return isempty(PLACES) ? nothing : get(PLACES, place, nothing)
end

is_in_use(root::Root) = root.tensor != C_NULL || root.shares > 0

function first_in_use(root)
    while root !== nothing && !is_in_use(root)
        root = root.next
    end
    return root
end

function sweep_places!()
    filter!(pair -> first_in_use(last(pair)) !== nothing, PLACES)
    SWEEP_AT[] = max(1024, 2 * length(PLACES))
    return nothing
end

# The roots whose memory an array uses: all that were imported from its address, since a plain array
# has no reference to the array that it reshapes.
roots_used(x::StridedTensor) = x.root
roots_used(A::Array) = root_at(place_of(A))
roots_used(A::AbstractArray) = parent(A) === A ? nothing : roots_used(parent(A))

# Adds an export of these roots (1), or removes one (-1).
function count_share!(root, change::Int)
    while root !== nothing
        root.shares += change
        root = root.next
    end
    return nothing
end

"""
    DLBridge.close(x)

Releases the memory of an imported array now, rather than when the garbage collector finds it. Reading a
`StridedTensor` afterwards is an error; a plain `Array` has no such check, so neither it nor a reshape of
it may be used again. An `Array` that was not imported, and an array whose memory is shared at this
moment, are `ArgumentError`s.
"""
close(x::StridedTensor) = close_unshared(x.root)
close(x::Array) = close_unshared(root_to_close(x))
Base.close(x::StridedTensor) = close(x)

function close_unshared(root::Root)
    forget_released!()
    root.shares == 0 || throw(ArgumentError(
        "array: expected one that is not shared, found one whose memory Python or C uses; " *
        "close it when that array is gone",
    ))
    close_root(root)
    drain()
    return nothing
end

# The root of an array, or of the one open import at its address.
function root_to_close(x::Array)
    id, found, count = objectid(root_of(x)), nothing, 0
    lock(ROOTS.lock)
    try
        root = root_at(place_of(x))
        while root !== nothing
            if root.tensor != C_NULL
                root.array == id && return root
                found, count = root, count + 1
            end
            root = root.next
        end
    finally
        unlock(ROOTS.lock)
    end
    count == 1 && return found::Root
    throw(ArgumentError(count == 0 ?
        "array: expected one that from_dlpack returned and that is open, found an Array of Julia's own" :
        "array: expected one that from_dlpack returned, found a reshape of one of $count imports of " *
        "this memory; close the imported array itself"))
end
