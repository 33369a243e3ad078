# Threads of Python that drop Julia's arrays, and Julia's collector on another thread.

using DLBridge: from_dlpack, share

run_python("""
import numpy as np, queue, threading
box = queue.Queue()
def dropper():
    while True:
        batch = box.get()
        if batch is None:
            return
        del batch
def start(count):
    global threads
    threads = [threading.Thread(target=dropper) for _ in range(count)]
    for thread in threads:
        thread.start()
def stop():
    for _ in threads:
        box.put(None)
""")

"Waits, detached, until Python's threads have ended."
function join_python()
    run_python("stop()")
    while truth("any(thread.is_alive() for thread in threads)")
        CPython.detached(() -> Libc.systemsleep(0.001))
    end
end

# The deleter of DLPack.jl 0.3.1 runs Julia code on Python's thread, and hangs.
@testset "a tensor dropped on a Python thread is released" begin
    run_python("start(1)")
    o = share(zeros(10), py("np.from_dlpack"))
    set("s", o)
    drop(o)
    run_python("box.put([s]); del s")
    join_python()
    settle()
    @test DLBridge.shared_count() == 0
end

@testset "a tensor dropped on a Python thread wakes Julia" begin
    run_python("start(1)")
    o = share(zeros(10), py("np.from_dlpack"))
    set("s", o)
    drop(o)
    run_python("box.put([s]); del s")
    run_python("stop()")
    CPython.detached() do
        deadline = time() + 60
        while DLBridge.shared_count() != 0 && time() < deadline
            sleep(0.001)
        end
    end
    @test DLBridge.shared_count() == 0
    join_python_again = truth("any(thread.is_alive() for thread in threads)")
    @test !join_python_again
end

const EXPORTS = 200_000
const BATCH = 500
const DONE = Threads.Atomic{Bool}(false)

"Shares arrays with NumPy, half of which Python's threads drop, and imports as many."
function exchange(consumer, producer)
    wrong = 0
    for batch in 1:EXPORTS÷BATCH
        run_python("batch = []")
        list = py("batch.append")
        for k in 1:BATCH
            A = fill(Float64(k), 3)
            o = share(A, consumer)
            drop(PyRef(CPython.call(list, o)))
            drop(o)
            x = from_dlpack(producer)
            wrong += x[1] != 1.0
        end
        drop(list)
        wrong += !truth("all(a[0] == k + 1 for k, a in enumerate(batch))")
        run_python("box.put(batch); del batch")
        # Python's threads get the GIL, and Julia's collector this thread.
        CPython.detached(yield)
        GC.safepoint()
    end
    return wrong
end

function collect_garbage()
    rounds = 0
    while !DONE[]
        started = time()
        [zeros(100) for _ in 1:1000]
        GC.gc(rounds % 10 == 0)
        rounds += 1
        # Each round stops the other thread, which must make progress as well.
        Libc.systemsleep(time() - started)
    end
    return rounds
end

if Threads.nthreads() < 2
    skip("two Julia threads", "JULIA_NUM_THREADS is 1")
else
    @testset "200,000 exports while a second Julia thread collects garbage" begin
        run_python("producer = np.ones(3); start(2)")
        consumer, producer = py("np.from_dlpack"), py("producer")
        wrong, rounds = Ref(-1), Ref(0)
        Threads.@threads for thread in 1:2
            if thread == 1
                try
                    wrong[] = exchange(consumer, producer)
                finally
                    DONE[] = true
                end
            else
                rounds[] = collect_garbage()
            end
        end
        @test wrong[] == 0
        @test rounds[] > 0
        join_python()
        settle()
        @test DLBridge.shared_count() == 0
        @test DLBridge.pending_count() == 0
        # numpy's array is referred to by its name and by us alone.
        @test int("sys.getrefcount(producer)") == 3
        foreach(drop, (consumer, producer))
    end
end
