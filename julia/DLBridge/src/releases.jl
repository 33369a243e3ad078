# What is kept for others, and what waits to be given back.
# Arrays do not belong here.
# Invariants: finalizers call C only, and never touch the table; the table is used under its lock.

# What shared tensors keep alive, at the index that is their token.
struct Roots
    lock::ReentrantLock
    objects::Vector{Any}
    free::Vector{Int}
end

const ROOTS = Roots(ReentrantLock(), Any[], Int[])

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

function let_go!(tokens)
    lock(ROOTS.lock)
    try
        for token in tokens
            index = Int(token)
            ROOTS.objects[index] = nothing
            push!(ROOTS.free, index)
        end
    finally
        unlock(ROOTS.lock)
    end
    return nothing
end

"How many arrays are shared at this moment."
function shared_count()
    lock(ROOTS.lock)
    try
        return length(ROOTS.objects) - length(ROOTS.free)
    finally
        unlock(ROOTS.lock)
    end
end

# The queue that other threads put tokens into, and finalizers tensors. It lives as long as Julia.
const QUEUE = Ref{Ptr{Cvoid}}(C_NULL)
const WAKER = Ref{Any}(nothing)
const TOKENS_AT_ONCE = 256

function start_releases()
    waker = Base.AsyncCondition()
    WAKER[] = waker
    send = cglobal(:uv_async_send)
    QUEUE[] = ccall(dlb_queue_new[], Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{Cvoid}), send, waker.handle)
    # The event loop closes the waker after the exit hooks.
    atexit(() -> ccall(dlb_queue_mute[], Cvoid, (Ptr{Cvoid},), QUEUE[]))
    @async while isopen(waker)
        wait(waker)
        drain()
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
    take_tokens()
    ccall(dlb_queue_drain[], Csize_t, (Ptr{Cvoid},), QUEUE[])
    return nothing
end

function take_tokens()
    tokens = Vector{Ptr{Cvoid}}(undef, TOKENS_AT_ONCE)
    while true
        count = ccall(
            dlb_queue_take[], Csize_t, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Csize_t),
            QUEUE[], tokens, TOKENS_AT_ONCE,
        )
        let_go!(UInt(token) for token in view(tokens, 1:Int(count)))
        count < TOKENS_AT_ONCE && return nothing
    end
end

"How many tokens and tensors wait to be given back."
pending_count() = Int(ccall(dlb_queue_pending[], Csize_t, (Ptr{Cvoid},), QUEUE[]))

@inline drain_if_pending() = pending_count() == 0 ? nothing : drain()

# Puts a tensor aside: no deleter runs, no lock but the queue's is taken, so that finalizers may.
release_later(tensor::Ptr{Cvoid}) =
    ccall(dlb_queue_release[], Cvoid, (Ptr{Cvoid}, Ptr{Cvoid}), QUEUE[], tensor)

release_now(tensor::Ptr{Cvoid}) = ccall(dlb_release[], Cvoid, (Ptr{Cvoid},), tensor)
