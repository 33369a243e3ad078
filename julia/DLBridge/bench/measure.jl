# How long a call takes, as a line for `cargo xtask bench julia`.
# Invariant: each line is the path, what is done, the nanoseconds of the best of several rounds in one
# process, and the bytes that one call allocates; tabs between.

# Short rounds: on a busy machine, some go undisturbed.
const ROUNDS = 100
const CALLS = 1000

function measure(work, path, name; rounds = ROUNDS, calls = CALLS)
    work()
    bytes = @allocated work()
    best = Inf
    for _ in 1:rounds
        GC.gc(false)
        DLBridge.drain()
        started = time_ns()
        for _ in 1:calls
            work()
        end
        best = min(best, (time_ns() - started) / calls)
    end
    println(join((path, name, round(best; digits = 1), bytes), '\t'))
end
