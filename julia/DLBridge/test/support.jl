# What the tests of either runner share: skips, collections, counts.

const SKIPPED = String[]

"Records a test that cannot run here, and why."
skip(what, reason) = (push!(SKIPPED, what); println("skipped: ", what, ": ", reason))

"Runs Julia's garbage collector, finalizers and queued releases."
function settle()
    for _ in 1:3
        GC.gc()
        sleep(0.01)
        DLBridge.drain()
    end
end

# How many tests of a set passed, its inner sets included.
function count_passed(set)
    inner = filter(result -> result isa Test.DefaultTestSet, set.results)
    return set.n_passed + mapreduce(count_passed, +, inner; init = 0)
end
