/* Plays NVIDIA's driver library, with streams that are as late as CUDA lets them be: work that is
 * queued runs when the host waits for it, or when a stream that it waits for makes it, and not
 * before. Code that forgets to wait reads old values, every time. Memory that is freed is overwritten.
 *
 * One device, whose memory is the host's; no kernels. A function named in LATE_DRIVER_FORGETS does
 * nothing, so that a test shows what it catches.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_HANDLE = 400 };

struct stream;

/* Work of a stream: a copy, a byte written many times, or a wait for another stream. */
struct work {
    unsigned char *to;
    unsigned char *from;
    size_t size;
    int byte;
    struct stream *other;
    size_t until;
};

/* Work that was queued, and how much of it has run. */
struct stream {
    struct work *queue;
    size_t queued, done, room;
};

struct event {
    struct stream *stream;
    size_t until;
};

/* The default streams: of all threads (0 and 1), and of one thread (2; there is one here). */
static struct stream legacy, per_thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local void *current;
static int context;

static struct stream *find(void *handle)
{
    uintptr_t number = (uintptr_t)handle;
    return number < 2 ? &legacy : number == 2 ? &per_thread : handle;
}

static void run(struct stream *stream, size_t until)
{
    while (stream->done < until) {
        struct work work = stream->queue[stream->done++];
        if (work.other)
            run(work.other, work.until);
        else if (work.from)
            memmove(work.to, work.from, work.size);
        else
            memset(work.to, work.byte, work.size);
    }
}

static int queue(void *handle, struct work work)
{
    struct stream *stream = find(handle);
    pthread_mutex_lock(&lock);
    if (stream->queued == stream->room) {
        stream->room = stream->room ? 2 * stream->room : 16;
        stream->queue = realloc(stream->queue, stream->room * sizeof work);
    }
    stream->queue[stream->queued++] = work;
    pthread_mutex_unlock(&lock);
    return OK;
}

static size_t queued(struct stream *stream)
{
    pthread_mutex_lock(&lock);
    size_t queued = stream->queued;
    pthread_mutex_unlock(&lock);
    return queued;
}

static int finish(struct stream *stream, size_t until)
{
    pthread_mutex_lock(&lock);
    run(stream, until);
    pthread_mutex_unlock(&lock);
    return OK;
}

static int forgets(const char *function)
{
    const char *named = getenv("LATE_DRIVER_FORGETS");
    return named && strcmp(named, function) == 0;
}

int cuInit(unsigned flags) { return flags ? INVALID_HANDLE : OK; }

int cuGetErrorName(int error, const char **name)
{
    *name = error == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR_PLAYED";
    return OK;
}

int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? OK : INVALID_DEVICE;
}

/* It has memory pools, whatever it is asked. */
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute;
    *value = 1;
    return device == 0 ? OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **made, int device)
{
    *made = &context;
    return device == 0 ? OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return device == 0 ? OK : INVALID_DEVICE; }

int cuCtxSetCurrent(void *chosen)
{
    current = chosen;
    return OK;
}

int cuCtxGetCurrent(void **chosen)
{
    *chosen = current;
    return OK;
}

int cuCtxPushCurrent_v2(void *chosen) { return cuCtxSetCurrent(chosen); }

int cuCtxPopCurrent_v2(void **chosen)
{
    *chosen = current;
    return OK;
}

/* Nobody here may rely on it: no wait is for the whole device. cudarc does so once, before there
 * is any work. */
int cuCtxSynchronize(void) { return OK; }

int cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof(struct stream));
    return *stream ? OK : OUT_OF_MEMORY;
}

/* Its work stays to be done, as that of a stream that is destroyed does. */
int cuStreamDestroy_v2(void *stream) { return stream ? OK : INVALID_HANDLE; }

int cuStreamGetCtx(void *stream, void **made)
{
    (void)stream;
    *made = &context;
    return OK;
}

int cuStreamSynchronize(void *handle)
{
    struct stream *stream = find(handle);
    return finish(stream, queued(stream));
}

int cuStreamWaitEvent(void *handle, struct event *event, unsigned flags)
{
    (void)flags;
    if (forgets("cuStreamWaitEvent") || !event->stream)
        return OK;
    return queue(handle, (struct work){.other = event->stream, .until = event->until});
}

int cuEventCreate(struct event **event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event ? OK : OUT_OF_MEMORY;
}

int cuEventRecord(struct event *event, void *handle)
{
    event->stream = find(handle);
    event->until = queued(event->stream);
    return OK;
}

int cuEventSynchronize(struct event *event)
{
    return event->stream ? finish(event->stream, event->until) : OK;
}

int cuEventDestroy_v2(struct event *event)
{
    free(event);
    return OK;
}

/* The size stands before the memory, for `cuMemFreeAsync`. */
int cuMemAllocAsync(uintptr_t *address, size_t size, void *handle)
{
    size_t *start = malloc(size + 64);
    (void)handle;
    if (!start)
        return OUT_OF_MEMORY;
    *start = size;
    *address = (uintptr_t)start + 64;
    return OK;
}

/* Overwritten when the stream comes to it, and never used again. */
int cuMemFreeAsync(uintptr_t address, void *handle)
{
    size_t size = *(size_t *)(address - 64);
    return queue(handle, (struct work){.to = (void *)address, .size = size, .byte = 0xdd});
}

int cuMemsetD8Async(uintptr_t to, unsigned char byte, size_t size, void *handle)
{
    return queue(handle, (struct work){.to = (void *)to, .size = size, .byte = byte});
}

/* What the host gives is taken at once, as pageable memory is. */
int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t size, void *handle)
{
    unsigned char *kept = malloc(size + 1);
    if (!kept)
        return OUT_OF_MEMORY;
    memcpy(kept, from, size);
    return queue(handle, (struct work){.to = (void *)to, .from = kept, .size = size});
}

int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t size, void *handle)
{
    return queue(handle,
                 (struct work){.to = (void *)to, .from = (void *)from, .size = size});
}

/* Pageable memory is written when this returns. */
int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t size, void *handle)
{
    queue(handle, (struct work){.to = to, .from = (void *)from, .size = size});
    return cuStreamSynchronize(handle);
}

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
    (void)attribute;
    *(int *)data = 0;
    return pointer ? OK : INVALID_HANDLE;
}
