# The table of objects that exports keep alive, and the queue of tensors to release.
# Invariants: finalizers call C only, and never touch the table; the table is used under its lock.

# Objects that exported tensors keep alive. An export's token is its index.
struct Roots
    lock::ReentrantLock
    objects::Vector{Any}
    # The imports whose memory they use (see closing.jl).
    imports::Vector{Union{Nothing,Root}}
    free::Vector{Int}
    # A buffer for tokens from the queue.
    tokens::Vector{Ptr{Cvoid}}
end

const ROOTS = Roots(ReentrantLock(), Any[], [], Int[], fill(C_NULL, 256))

# Keeps the objects that an export of `A` needs alive, and returns the token.
function keep!(A::AbstractArray)
    object = root_of_share(A)
    lock(ROOTS.lock)
    try
        imports = roots_used(A)
        count_share!(imports, 1)
        if isempty(ROOTS.free)
            push!(ROOTS.objects, object)
            push!(ROOTS.imports, imports)
            return length(ROOTS.objects)
        end
        index = pop!(ROOTS.free)
        ROOTS.objects[index], ROOTS.imports[index] = object, imports
        return index
    finally
        unlock(ROOTS.lock)
    end
end

# Removes the entry of an export that failed.
function forget!(index)
    lock(ROOTS.lock)
    try
        empty_place!(index)
        return nothing
    finally
        unlock(ROOTS.lock)
    end
end

function empty_place!(index)
    count_share!(ROOTS.imports[index], -1)
    ROOTS.objects[index] = ROOTS.imports[index] = nothing
    push!(ROOTS.free, index)
    return nothing
end

# Takes all tokens out of the queue and removes their entries.
function forget_released!()
    is_loaded() || return nothing
    lock(ROOTS.lock)
    try
        while true
            count = take_tokens!(ROOTS.tokens)
            for k in 1:count
                empty_place!(Int(UInt(ROOTS.tokens[k])))
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

const WAKER = Ref{Any}(nothing)

# A new queue, and the task that empties it.
function start_releases()
    # While packages are compiled ahead nothing may wait.
    is_precompiling() && return new_queue(C_NULL, C_NULL)
    waker = Base.AsyncCondition()
    WAKER[] = waker
    queue = new_queue(cglobal(:uv_async_send), waker.handle)
    # The event loop closes the waker after the exit hooks.
    atexit(() -> ccall(dlb_queue_mute[], Cvoid, (Ptr{Cvoid},), queue))
    @async drain_when_woken(waker)
    return queue
end

new_queue(wake, context) =
    ccall(dlb_queue_new.address, Ptr{Cvoid}, (Ptr{Cvoid}, Ptr{Cvoid}), wake, context)

# Seconds between attempts while this thread does not hold the GIL. The queue wakes for the first tensor alone, and
# that wake-up may have been in vain.
const RETRY = 0.1

function drain_when_woken(waker)
    while isopen(waker)
        wait(waker)
        try
            drain()
        catch error
            @error "DLBridge could not release memory" exception = error
        end
        pending_count() == 0 || retry_later(waker)
    end
    return nothing
end

const IS_RETRYING = Ref(false)

function retry_later(waker)
    IS_RETRYING[] && return nothing
    IS_RETRYING[] = true
    Timer(RETRY) do _
        IS_RETRYING[] = false
        isopen(waker) && ccall(:uv_async_send, Cint, (Ptr{Cvoid},), waker.handle)
    end
    return nothing
end

"""
    DLBridge.drain()

Releases Julia's arrays that Python and C no longer use, and tensors whose Julia arrays are gone. It also
happens by itself; where Python runs, tensors are released only on a thread that holds the GIL.
"""
function drain()
    is_loaded() || return nothing
    forget_released!()
    ccall(dlb_queue_drain[], Csize_t, (Ptr{Cvoid},), QUEUE[])
    return nothing
end

"The number of tokens and tensors that wait to be released."
pending_count() = is_loaded() ? Int(ccall(dlb_queue_pending[], Csize_t, (Ptr{Cvoid},), QUEUE[])) : 0

@inline drain_if_pending() = pending_count() == 0 ? nothing : drain()

# Queues a tensor. Finalizers may call this, since no deleter runs and no lock but the queue's is taken.
release_later(tensor::Ptr{Cvoid}) =
    ccall(dlb_queue_release[], Cint, (Ptr{Cvoid}, Ptr{Cvoid}), QUEUE[], tensor)

release_now(tensor::Ptr{Cvoid}) = ccall(dlb_release[], Cvoid, (Ptr{Cvoid},), tensor)
