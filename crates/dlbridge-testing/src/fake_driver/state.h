/* The state of the fake CUDA driver: streams, events, captures and memory, and how work runs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    OK, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, DEINITIALIZED = 4, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400, NOT_READY = 600, CONTEXT_IS_DESTROYED = 709, UNSUPPORTED = 900, INVALIDATED, MERGE, UNMATCHED,
    UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD, UNKNOWN = 999, FORGOTTEN = -1,
};
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { CAPTURES = 1, BROKEN };
enum { DEVICES = 8, DEPTH = 16 };
enum { FIRST_CONTEXT = 0xc000, FIRST_STREAM = 0x5000, FIRST_EVENT = 0xe001, FIRST_GRAPH = 0x9000 };
/* What a function asks of its caller: a current context; that no capture forbids it. */
enum { ANYWHERE, CONTEXT, SAFE = CONTEXT, UNSAFE = CONTEXT | 2 };

typedef uintptr_t handle;
struct stream;

/* A copy, a byte written many times (neither `from` nor `other`), a wait for another stream, or a free. */
struct work {
    unsigned char *to, *from;
    size_t size, until;
    int byte, frees;
    struct stream *other;
};

struct queue {
    struct work *items;
    size_t count, room;
};

/* What streams record between the begin and the end of a capture. */
struct capture {
    int mode, state;
    pthread_t thread;
    struct stream *origin;
    struct queue graph;
};

struct stream {
    handle number;
    int device, is_blocking, is_dead;
    struct queue queue;
    size_t done;
    struct capture *capture;
    /* How much it has recorded, and how much of that the origin of the capture waits for. */
    size_t recorded, joined;
};

/* After `until` items of a stream, or after the work of a context: one place in each of its streams. */
struct event {
    handle number;
    int device, is_dead;
    struct capture *capture;
    size_t count;
    struct place {
        struct stream *stream;
        size_t until;
    } *places;
};

struct memory {
    handle start;
    size_t size;
    int device, is_freed, is_gone;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream **streams;
static struct event **events;
static struct capture **graphs;
static struct memory *memories;
static size_t stream_count, event_count, graph_count, memory_count, numbered;
static struct stream *legacy[DEVICES];
static int retained[DEVICES], has_ended;
static pid_t process;
static _Thread_local struct stream *per_thread[DEVICES];
static _Thread_local handle contexts[DEPTH];
static _Thread_local int depth, thread_mode, is_quiet;

#define APPEND(list, count, item) ((list) = realloc((list), ((count) + 1) * sizeof *(list)), (list)[(count)++] = (item))

static void end(const char *function, const char *why, handle which)
{
    fprintf(stderr, "fake driver: %s: %s (%zx)\n", function, why, (size_t)which);
    abort();
}

static int names(const char *variable, const char *function)
{
    const char *named = getenv(variable);
    return !is_quiet && named && strcmp(named, function) == 0;
}

static void break_capture(struct capture *capture) { capture->state = BROKEN; }

static int is_active(struct stream *stream) { return stream->capture && stream->capture->state == CAPTURES; }

/* Breaks the captures that forbid this thread an unsafe call. */
static int forbidden(void)
{
    int found = 0;
    for (size_t at = 0; at < stream_count; at++) {
        struct capture *capture = streams[at]->capture;
        if (!is_active(streams[at]) || thread_mode == RELAXED || capture->mode == RELAXED)
            continue;
        int is_own = pthread_equal(capture->thread, pthread_self());
        if (is_own || (capture->mode == GLOBAL && thread_mode == GLOBAL))
            break_capture(capture), found = 1;
    }
    return found;
}

static int device_of(handle context) { return (int)(context - FIRST_CONTEXT); }

/* Each function begins with it. */
static int enter(const char *function, handle first, handle second, int needs)
{
    if (!process)
        process = getpid();
    if (process != getpid())
        end(function, "called in a forked child", first);
    const char *path = getenv("FAKE_DRIVER_LOG");
    FILE *log = path && *path && !is_quiet ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s %zx %zx\n", function, (size_t)first, (size_t)second);
        fclose(log);
    }
    if (has_ended)
        return DEINITIALIZED;
    if (names("FAKE_DRIVER_FAILS", function))
        return UNKNOWN;
    if (names("FAKE_DRIVER_FORGETS", function))
        return FORGOTTEN;
    if (needs & CONTEXT) {
        if (!depth || !contexts[depth - 1])
            return INVALID_CONTEXT;
        if (!retained[device_of(contexts[depth - 1])])
            return CONTEXT_IS_DESTROYED;
    }
    return needs == UNSAFE && forbidden() ? UNSUPPORTED : OK;
}

static void unlock(int *locked)
{
    if (*locked)
        pthread_mutex_unlock(&lock);
}

#define ENTER(first, second, needs)                                                                                    \
    __attribute__((cleanup(unlock))) int locked = !pthread_mutex_lock(&lock);                                          \
    int entered = enter(__func__, (handle)(first), (handle)(second), needs);                                           \
    if (entered)                                                                                                       \
    return entered == FORGOTTEN ? OK : entered

static int current(void) { return device_of(contexts[depth - 1]); }

static struct stream *new_stream(handle number, int device, int is_blocking)
{
    struct stream *made = calloc(1, sizeof *made);
    made->number = number, made->device = device, made->is_blocking = is_blocking;
    APPEND(streams, stream_count, made);
    return made;
}

static struct stream *find(const char *function, handle number)
{
    if (number < 3) {
        int device = current();
        struct stream **place = number < 2 ? &legacy[device] : &per_thread[device];
        return *place ? *place : (*place = new_stream(number, device, number == 2));
    }
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at]->number == number) {
            if (streams[at]->is_dead)
                end(function, "called with a destroyed stream", number);
            return streams[at];
        }
    end(function, "called with a stream that does not exist", number);
    return NULL;
}

static struct event *find_event(const char *function, handle number)
{
    if (number < FIRST_EVENT || number - FIRST_EVENT >= event_count)
        end(function, "called with an event that does not exist", number);
    struct event *event = events[number - FIRST_EVENT];
    if (event->is_dead)
        end(function, "called with a destroyed event", number);
    return event;
}

static struct memory *find_memory(handle address)
{
    for (size_t at = 0; at < memory_count; at++)
        if (address >= memories[at].start && address < memories[at].start + memories[at].size)
            return &memories[at];
    return NULL;
}

static void check_memory(void *address, size_t size)
{
    struct memory *memory = find_memory((handle)address);
    if (memory && memory->is_gone)
        end("a queued copy or fill", "illegal memory access: it was freed before", (handle)address);
    if (memory && (handle)address + size > memory->start + memory->size)
        end("a queued copy or fill", "illegal memory access: behind the allocation", (handle)address);
}

static void do_work(struct work work)
{
    if (work.frees) {
        struct memory *memory = find_memory((handle)work.to);
        memset(work.to, 0xdd, memory->size);
        mprotect(work.to, memory->size, PROT_NONE);
        memory->is_gone = 1;
        return;
    }
    check_memory(work.to, work.size);
    if (!work.from) {
        memset(work.to, work.byte, work.size);
        return;
    }
    check_memory(work.from, work.size);
    memmove(work.to, work.from, work.size);
}

/* Frees run as soon as nothing before them in their stream is left. */
static void run_frees(void)
{
    for (size_t at = 0; at < stream_count; at++) {
        struct stream *stream = streams[at];
        for (; stream->done < stream->queue.count; stream->done++, at = (size_t)-1) {
            struct work work = stream->queue.items[stream->done];
            if (work.frees)
                do_work(work);
            else if (!work.other || work.other->done < work.until)
                break;
        }
    }
}

/* Runs a stream, and the streams that it waits for. */
static void run(struct stream *stream, size_t until)
{
    while (stream->done < until) {
        size_t at = stream->done;
        struct work work = stream->queue.items[at];
        if (work.other)
            run(work.other, work.until);
        else
            do_work(work);
        // The wait may have been passed by then.
        if (stream->done == at)
            stream->done++;
        run_frees();
    }
}

static void run_all(struct stream *stream) { run(stream, stream->queue.count); }

static void append(struct queue *queue, struct work work) { APPEND(queue->items, queue->count, work); }

static void wait_for(struct stream *stream, struct stream *other, size_t until)
{
    if (other != stream && other->done < until)
        append(&stream->queue, (struct work){.other = other, .until = until});
}

/* The legacy stream waits for all blocking streams of its device, and they for it. */
static int join_legacy(struct stream *stream)
{
    if (stream == legacy[stream->device]) {
        for (size_t at = 0; at < stream_count; at++) {
            struct stream *other = streams[at];
            if (!other->is_blocking || other->device != stream->device)
                continue;
            if (is_active(other)) {
                break_capture(other->capture);
                return IMPLICIT;
            }
            wait_for(stream, other, other->queue.count);
        }
    } else if (stream->is_blocking && legacy[stream->device])
        wait_for(stream, legacy[stream->device], legacy[stream->device]->queue.count);
    return OK;
}

static int queue(struct stream *stream, struct work work)
{
    if (stream->capture) {
        if (stream->capture->state == BROKEN)
            return INVALIDATED;
        append(&stream->capture->graph, work);
        stream->recorded++;
        return OK;
    }
    int refused = join_legacy(stream);
    if (!refused)
        append(&stream->queue, work);
    return refused;
}

/* A stream that the host asks about or waits for must not capture. */
static int uncaptured(struct stream *stream)
{
    if (!stream->capture)
        return join_legacy(stream);
    break_capture(stream->capture);
    return UNSUPPORTED;
}
