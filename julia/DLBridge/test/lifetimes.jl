# Lifetimes: imported and exported arrays keep the memory alive, and `close` releases it.

using DLBridge: from_dlpack, share

run_python("""
import numpy as np, weakref
def watched(code):
    global owner, watch
    owner = eval(code)
    watch = weakref.ref(owner)
""")

"Whether Python's array is still alive."
alive() = truth("watch() is not None")

# The functions below are not inlined, so that no array stays on the caller's stack.
@noinline function import_and_forget(code, make)
    run_python("watched($(repr(code)))")
    o = py("owner")
    x = make(from_dlpack(o))
    drop(o)
    run_python("del owner")
    return x
end

@noinline values_of(holder) = collect(holder[1])

# In functions, since code at the top level keeps what it has seen.
function keeps_alive(code, make)
    holder = Any[import_and_forget(code, make)]
    values = values_of(holder)
    settle()
    @test alive()
    run_python("junk = [np.full(1000, 7.0) for _ in range(100)]")
    @test values_of(holder) == values
    empty!(holder)
    settle()
    @test !alive()
end

# DLPack.jl 0.3.1 does not keep the tensor alive: the values change under the array.
@testset "an imported array keeps the Python object alive through $name" for (name, make) in (
    ("itself", identity), ("reshape", x -> reshape(x, 10, 100)), ("view", x -> view(x, 3:7)),
    ("reshape twice", x -> vec(reshape(x, 10, 100))), ("reinterpret", x -> reinterpret(UInt64, x)),
)
    keeps_alive("np.arange(1000.0)", make)
    keeps_alive("np.arange(1000.0)[::-1]", make)
end

@testset "a copy keeps no Python object alive" begin
    holder = Any[]
    run_python("watched('np.arange(10.0)')")
    o = py("owner")
    push!(holder, from_dlpack(o; copy = true))
    drop(o)
    run_python("del owner")
    @test !alive()
    @test holder[1] == 0:9
end

@testset "close releases the memory at once" begin
    for code in ("np.arange(10.0)", "np.arange(10.0)[::2]")
        x = import_and_forget(code, identity)
        @test alive()
        DLBridge.close(x)
        @test !alive()
    end
    x = import_and_forget("np.arange(10.0)[::2]", identity)
    @test isopen(x)
    close(x)
    close(x)
    @test !isopen(x)
    @test_throws ArgumentError x[1]
    @test_throws ArgumentError x[1] = 0
    @test_throws ArgumentError share(x, py("np.from_dlpack"))
end

@testset "close refuses an array that is exported" begin
    for code in ("np.arange(10.0)", "np.arange(10.0)[::2]")
        x = import_and_forget(code, identity)
        for part in (x, view(x, 2:3), x isa Array ? reshape(x, 1, 10) : view(x, 5:-1:1))
            o = share(part, py("np.from_dlpack"))
            @test_throws ArgumentError DLBridge.close(x)
            @test alive()
            drop(o)
        end
        DLBridge.close(x)
        @test !alive()
    end
end

@noinline import_once(make) = (o = PyRef(CPython.call0(make)); from_dlpack(o); drop(o); nothing)

@testset "imports in a loop are collected in time" begin
    run_python("""
    made = []
    def make():
        a = np.zeros(2_500_000)
        made.append(weakref.ref(a))
        return a
    """)
    make, most = py("make"), 0
    for _ in 1:100
        import_once(make)
        most = max(most, int("sum(a() is not None for a in made)"))
    end
    @test 2 <= most <= 40
    drop(make)
    settle()
end

@testset "of several threads that close an array, one releases it" begin
    for code in ("np.arange(10.0)", "np.arange(10.0)[::-1]")
        x = import_and_forget(code, identity)
        root = x isa Array ? DLBridge.root_at(DLBridge.place_of(x)) : x.root
        Threads.@threads for _ in 1:100
            DLBridge.close_root(root)
        end
        @test DLBridge.pending_count() <= 1
        DLBridge.drain()
        @test !alive()
        GC.@preserve x nothing
    end
end

@testset "close of a reshape closes the imported array" begin
    x = import_and_forget("np.arange(10.0)", identity)
    close_it = DLBridge.close
    close_it(reshape(x, 2, 5))
    @test !alive()
    @test_throws ArgumentError close_it(x)
    # Of two imports of one memory, a reshape does not tell which one it is.
    run_python("watched('np.arange(10.0)')")
    o = py("owner")
    x, y = from_dlpack(o), from_dlpack(o)
    drop(o)
    run_python("del owner")
    error = try close_it(reshape(x, 2, 5)) catch e; e end
    @test error isa ArgumentError && occursin("one of 2 imports", error.msg)
    close_it(y)
    @test alive()
    close_it(reshape(x, 2, 5))
    @test !alive()
    GC.@preserve x y nothing
end

@testset "close refuses an array that was not imported" begin
    A, finalized = zeros(3), Ref(0)
    finalizer(_ -> finalized[] += 1, A)
    error = try DLBridge.close(A) catch e; e end
    @test error isa ArgumentError && occursin("found an Array of Julia's own", error.msg)
    @test finalized[] == 0
    GC.@preserve A nothing
end

function time_to_close(code)
    return minimum(1:20) do _
        x = CPython.import_of(from_dlpack, code)
        @elapsed DLBridge.close(x)
    end
end

@testset "close takes constant time beside 20,000 exports" begin
    imports = [CPython.import_of(from_dlpack, "np.arange(3.0)") for _ in 1:2000]
    for code in ("np.arange(3.0)", "np.arange(3.0)[::-1]")
        alone = time_to_close(code)
        objects = [share(k % 2 == 0 ? zeros(1) : imports[k % 2000 + 1], PyRef, identity) for k in 1:20_000]
        @test DLBridge.shared_count() == 20_000
        @test time_to_close(code) < 20 * alone + 1e-4
        @test_throws ArgumentError DLBridge.close(imports[2])
        foreach(drop, objects)
        settle()
        @test DLBridge.shared_count() == 0
    end
    foreach(DLBridge.close, imports)
    @test DLBridge.pending_count() == 0
end

@noinline function share_and_forget(make)
    A = make()
    finalizer(_ -> (FINALIZED[] += 1), A)
    o = share(A, py("np.from_dlpack"))
    set("s", o)
    drop(o)
    return nothing
end

const FINALIZED = Ref(0)

# DLPack.jl 0.3.1 releases arrays that Python still uses, or leaks them.
@testset "Python keeps a shared array alive" begin
    for make in (() -> collect(1.0:1000.0), () -> reshape(collect(1.0:1000.0), 10, 100))
        before = FINALIZED[]
        share_and_forget(make)
        settle()
        junk = [fill(7.0, 1000) for _ in 1:100]
        @test int("int(s.sum())") == 500500
        @test FINALIZED[] == before
        @test DLBridge.shared_count() == 1
        run_python("del s")
        settle()
        @test DLBridge.shared_count() == 0
        settle()
        @test FINALIZED[] == before + 1
    end
end

@testset "an exported array can be imported again" begin
    A = collect(1.0:6.0)
    o = share(A, py("np.from_dlpack"))
    set("s", o)
    drop(o)
    back = CPython.import_of(from_dlpack, "s[::-2]")
    run_python("del s")
    settle()
    @test back == [6, 4, 2]
    back[1] = 60
    @test A[6] == 60
    @test DLBridge.shared_count() == 1
    DLBridge.close(back)
    settle()
    @test DLBridge.shared_count() == 0
end

@testset "queued tensors are released on a thread that holds the GIL" begin
    foreach(code -> (import_and_forget(code, identity); nothing), ("np.arange(10.0)",))
    CPython.detached() do
        GC.gc()
        DLBridge.drain()
        @test DLBridge.pending_count() == 1
    end
    DLBridge.drain()
    @test DLBridge.pending_count() == 0
    @test !alive()
end

# Threads of Python that drop Julia's arrays, and Julia's collector on another thread.
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
