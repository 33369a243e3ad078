# What is kept for others, and what waits to be given back.
# Arrays do not belong here.
# Invariants: finalizers call C only, and never touch the table; the table is used under its lock.

# What shared tensors keep alive, at the index that is their token.
struct Roots
    lock::ReentrantLock
    objects::Vector{Any}
    free::Vector{Int}
    # Room for tokens that come back.
    tokens::Vector{Ptr{Cvoid}}
end

const ROOTS = Roots(ReentrantLock(), Any[], Int[], fill(C_NULL, 256))

function keep!(object)
    lock(ROOTS.lock)
    try
        if isempty(ROOTS.free)
            push!(ROOTS.objects, object)
            return length(ROOTS.objects)
        end
        index = pop!(ROOTS.free)
        ROOTS.objects[index] = object
        return index
    finally
        unlock(ROOTS.lock)
    end
end

# Forgets what a token of an export that failed kept.
function forget!(index)
    lock(ROOTS.lock)
    try
        ROOTS.objects[index] = nothing
        push!(ROOTS.free, index)
        return nothing
    finally
        unlock(ROOTS.lock)
    end
end

# Takes all tokens out of the queue and forgets what they kept.
function let_go!()
    lock(ROOTS.lock)
    try
        while true
            count = take_tokens!(ROOTS.tokens)
            for k in 1:count
                index = Int(UInt(ROOTS.tokens[k]))
                ROOTS.objects[index] = nothing
                push!(ROOTS.free, index)
            end
            count < length(ROOTS.tokens) && return nothing
        end
    finally
        unlock(ROOTS.lock)
    end
end

take_tokens!(tokens) = Int(ccall(
    dlb_queue_take[], Csize_t, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Csize_t),
    QUEUE[], tokens, length(tokens),
))

"How many arrays are shared at this moment."
function shared_count()
    lock(ROOTS.lock)
    try
        return length(ROOTS.objects) - length(ROOTS.free)
    finally
        unlock(ROOTS.lock)
    end
end

# Whoever has an array that was shared reads its memory: it must not go before the last of them.
function check_not_shared(x)
    let_go!()
    lock(ROOTS.lock)
    try
        any(kept -> is_over(kept, x), ROOTS.objects) || return nothing
    finally
        unlock(ROOTS.lock)
    end
    throw(ArgumentError("array: its memory is shared at this moment, wanted one that nobody else uses"))
end

# Whether what is kept uses the memory of an array. Plain arrays do not tell whose reshape they are,
# so that all with the same memory count, also when it is Julia's own that came back through Python.
function is_over(kept, x)
    kept isa Tuple && return any(part -> is_over(part, x), kept)
    kept === x && return true
    if x isa Array
        kept === root_of(x) && return true
        kept isa Array && pointer(kept) == pointer(x) && return true
    end
    return kept isa AbstractArray && parent(kept) !== kept && is_over(parent(kept), x)
end

# The queue that other threads put tokens into, and finalizers tensors. It lives as long as Julia.
const QUEUE = Ref{Ptr{Cvoid}}(C_NULL)
const WAKER = Ref{Any}(nothing)

function start_releases()
    # While packages are compiled ahead nothing may wait.
    if ccall(:jl_generating_output, Cint, ()) == 1
        QUEUE[] = new_queue(C_NULL, C_NULL)
        return nothing
    end
    waker = Base.AsyncCondition()
    WAKER[] = waker
    QUEUE[] = new_queue(cglobal(:uv_async_send), waker.handle)
    # The event loop closes the waker after the exit hooks.
    atexit(() -> ccall(dlb_queue_mute[], Cvoid, (Ptr{Cvoid},), QUEUE[]))
    @async drain_when_woken(waker)
    return nothing
end

new_queue(wake, context) =
    ccall(dlb_queue_new[], Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{Cvoid}), wake, context)

function drain_when_woken(waker)
    while isopen(waker)
        wait(waker)
        try
            drain()
        catch error
            @error "DLBridge could not give memory back" exception = error
        end
    end
    return nothing
end

"""
    DLBridge.drain()

Gives back what nobody uses any more: arrays that others have dropped, and tensors whose Julia
arrays are gone. It happens by itself; where Python runs, tensors are given back only on a thread
that holds Python's lock.
"""
function drain()
    let_go!()
    ccall(dlb_queue_drain[], Csize_t, (Ptr{Cvoid},), QUEUE[])
    return nothing
end

"How many tokens and tensors wait to be given back."
pending_count() = Int(ccall(dlb_queue_pending[], Csize_t, (Ptr{Cvoid},), QUEUE[]))

@inline drain_if_pending() = pending_count() == 0 ? nothing : drain()

# Puts a tensor aside: no deleter runs, no lock but the queue's is taken, so that finalizers may.
release_later(tensor::Ptr{Cvoid}) =
    ccall(dlb_queue_release[], Cint, (Ptr{Cvoid}, Ptr{Cvoid}), QUEUE[], tensor)

release_now(tensor::Ptr{Cvoid}) = ccall(dlb_release[], Cvoid, (Ptr{Cvoid},), tensor)
