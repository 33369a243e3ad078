/* A fake CUDA driver, as strict as the real one. Device memory is the host's, so that tests read it; there are no
 * kernels, because copies and fills are what an order of work needs.
 *
 * - Copies, fills and waits run as late as CUDA permits: when the host waits for them, or a stream that must run first.
 *   A free runs as early as that leaves it: as soon as nothing before it in its stream is left. So code that forgets
 *   to order its work fails every time, where a GPU would fail now and then.
 * - A call needs a current context on its thread. Freed memory is overwritten, and its pages cannot be accessed.
 * - A destroyed stream or event still does its work, but its handle is dead: a call with it ends the process. So does a
 *   call from a forked child, and queued work on freed memory.
 * - A stream that captures breaks by what breaks it on hardware (an H100, driver 13.0).
 *
 * Environment: FAKE_DRIVER_LOG names a file for one line a call, FAKE_DRIVER_FORGETS a function that does nothing,
 * FAKE_DRIVER_FAILS one that fails with CUDA_ERROR_UNKNOWN, FAKE_DRIVER_DEVICES the number of devices (2). With
 * -DOLDER_DRIVER it has no cuCtxRecordEvent. Handles are numbers that say what they are: contexts 0xc000 and on,
 * events 0xe001, streams 0x5000, graphs 0x9000.
 */
#include "state.h"

/* For the calls that a test makes as a framework: they are not in the log, and the environment does not change them. */
void fakeDriverQuiet(int quiet) { is_quiet = quiet; }

static void at_exit(void) { has_ended = 1; }

int cuInit(unsigned flags)
{
    ENTER(flags, 0, ANYWHERE);
    static int is_registered;
    if (!is_registered)
        is_registered = 1, atexit(at_exit);
    return flags ? INVALID_VALUE : OK;
}

int cuDriverGetVersion(int *version)
{
    ENTER(0, 0, ANYWHERE);
#ifdef OLDER_DRIVER
    return *version = 12040, OK;
#else
    return *version = 13000, OK;
#endif
}

int cuGetErrorName(int error, const char **name)
{
    static const struct {
        int error;
        const char *name;
    } known[] = {
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
        {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
        {UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
        {UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
        {ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
        {IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
        {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT"},
        {WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
        {UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    *name = NULL;
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at].error == error)
            *name = known[at].name;
    return *name ? OK : INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }

static int device_count(void)
{
    const char *named = getenv("FAKE_DRIVER_DEVICES");
    return named && *named ? atoi(named) : 2;
}

static int check_device(int device) { return device >= 0 && device < device_count() ? OK : INVALID_DEVICE; }

int cuDeviceGetCount(int *count)
{
    ENTER(0, 0, ANYWHERE);
    return *count = device_count(), OK;
}

int cuDeviceGetName(char *name, int size, int device)
{
    ENTER(device, 0, ANYWHERE);
    return snprintf(name, (size_t)size, "fake device"), OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER(ordinal, 0, ANYWHERE);
    return *device = ordinal, check_device(ordinal);
}

/* It has memory pools, whatever it is asked. */
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER(attribute, device, ANYWHERE);
    return *value = 1, check_device(device);
}

int cuDevicePrimaryCtxRetain(handle *made, int device)
{
    ENTER(device, 0, ANYWHERE);
    if (check_device(device))
        return INVALID_DEVICE;
    retained[device]++;
    return *made = FIRST_CONTEXT + (handle)device, OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER(device, 0, ANYWHERE);
    if (check_device(device) || !retained[device])
        return INVALID_CONTEXT;
    return retained[device]--, OK;
}

static int check_context(handle context)
{
    if (context < FIRST_CONTEXT || check_device(device_of(context)))
        return INVALID_CONTEXT;
    return retained[device_of(context)] ? OK : CONTEXT_IS_DESTROYED;
}

int cuCtxSetCurrent(handle context)
{
    ENTER(context, 0, ANYWHERE);
    if (context && check_context(context))
        return check_context(context);
    if (!depth)
        depth = 1;
    return contexts[depth - 1] = context, OK;
}

int cuCtxGetCurrent(handle *context)
{
    ENTER(0, 0, ANYWHERE);
    return *context = depth ? contexts[depth - 1] : 0, OK;
}

int cuCtxPushCurrent_v2(handle context)
{
    ENTER(context, 0, ANYWHERE);
    if (check_context(context) || depth == DEPTH)
        return check_context(context) ? check_context(context) : INVALID_VALUE;
    return contexts[depth++] = context, OK;
}

int cuCtxPopCurrent_v2(handle *context)
{
    ENTER(0, 0, ANYWHERE);
    if (!depth)
        return INVALID_CONTEXT;
    return *context = contexts[--depth], OK;
}

int cuCtxGetDevice(int *device)
{
    ENTER(0, 0, CONTEXT);
    return *device = current(), OK;
}

/* The number of a stream comes after the last one. */
int cuStreamCreate(handle *stream, unsigned flags)
{
    ENTER(flags, 0, SAFE);
    return *stream = new_stream(FIRST_STREAM + numbered++, current(), !(flags & 1))->number, OK;
}

/* Its work is done: what it waits for is done first. */
int cuStreamDestroy_v2(handle number)
{
    ENTER(number, 0, SAFE);
    struct stream *stream = find(__func__, number);
    if (stream->number < 3)
        return INVALID_HANDLE;
    run_all(stream);
    if (stream->capture)
        break_capture(stream->capture), stream->capture = NULL;
    return stream->is_dead = 1, OK;
}

int cuStreamGetCtx(handle number, handle *context)
{
    ENTER(number, 0, SAFE);
    return *context = FIRST_CONTEXT + (handle)find(__func__, number)->device, OK;
}

int cuStreamSynchronize(handle number)
{
    ENTER(number, 0, UNSAFE);
    struct stream *stream = find(__func__, number);
    int refused = uncaptured(stream);
    if (!refused)
        run_all(stream);
    return refused;
}

int cuStreamQuery(handle number)
{
    ENTER(number, 0, UNSAFE);
    struct stream *stream = find(__func__, number);
    int refused = uncaptured(stream);
    return refused ? refused : stream->done < stream->queue.count ? NOT_READY : OK;
}

/* The stream joins the capture in which the event was recorded, if the capture is active. */
static int wait_for_captured(struct stream *stream, struct event *event)
{
    struct capture *capture = event->capture;
    struct place *place = event->places;
    if (stream->capture && stream->capture != capture) {
        break_capture(stream->capture);
        return capture->state == CAPTURES ? MERGE : ISOLATION;
    }
    if (capture->state != CAPTURES)
        return INVALID_VALUE;
    if (!stream->capture)
        stream->capture = capture, stream->recorded = stream->joined = 0;
    if (stream == capture->origin && place->stream->joined < place->until)
        place->stream->joined = place->until;
    return OK;
}

int cuStreamWaitEvent(handle number, handle event_number, unsigned flags)
{
    ENTER(number, event_number, SAFE);
    struct stream *stream = find(__func__, number);
    struct event *event = find_event(__func__, event_number);
    if (flags)
        return INVALID_VALUE;
    if (stream->capture && stream->capture->state == BROKEN)
        return INVALIDATED;
    if (event->capture)
        return wait_for_captured(stream, event);
    if (stream->capture && event->count) {
        break_capture(stream->capture);
        return ISOLATION;
    }
    int refused = join_legacy(stream);
    for (size_t at = 0; !refused && at < event->count; at++)
        wait_for(stream, event->places[at].stream, event->places[at].until);
    return refused;
}

int cuEventCreate(handle *made, unsigned flags)
{
    ENTER(flags, 0, SAFE);
    struct event *event = calloc(1, sizeof *event);
    event->number = FIRST_EVENT + event_count, event->device = current();
    APPEND(events, event_count, event);
    return *made = event->number, OK;
}

static void record(struct event *event, struct stream *stream)
{
    struct place place = {stream, stream->capture ? stream->recorded : stream->queue.count};
    APPEND(event->places, event->count, place);
}

int cuEventRecord(handle event_number, handle number)
{
    ENTER(event_number, number, SAFE);
    struct stream *stream = find(__func__, number);
    struct event *event = find_event(__func__, event_number);
    if (event->device != stream->device)
        return INVALID_HANDLE;
    if (stream->capture && stream->capture->state == BROKEN)
        return INVALIDATED;
    int refused = stream->capture ? OK : join_legacy(stream);
    if (refused)
        return refused;
    event->count = 0, event->capture = stream->capture;
    return record(event, stream), OK;
}

#ifndef OLDER_DRIVER
/* After all that is queued on the streams of a context. A capture in it breaks, in every mode. */
int cuCtxRecordEvent(handle context, handle event_number)
{
    ENTER(context, event_number, SAFE);
    struct event *event = find_event(__func__, event_number);
    int device = device_of(context), refused = check_context(context);
    if (refused || event->device != device)
        return refused ? refused : INVALID_HANDLE;
    for (size_t at = 0; at < stream_count; at++)
        if (is_active(streams[at]) && streams[at]->device == device)
            break_capture(streams[at]->capture), refused = UNSUPPORTED;
    if (refused)
        return refused;
    event->count = 0, event->capture = NULL;
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at]->device == device && streams[at]->done < streams[at]->queue.count)
            record(event, streams[at]);
    return OK;
}
#endif

int cuEventSynchronize(handle number)
{
    ENTER(number, 0, UNSAFE);
    struct event *event = find_event(__func__, number);
    if (event->capture)
        return CAPTURED_EVENT;
    for (size_t at = 0; at < event->count; at++)
        run(event->places[at].stream, event->places[at].until);
    return OK;
}

int cuEventQuery(handle number)
{
    ENTER(number, 0, UNSAFE);
    struct event *event = find_event(__func__, number);
    if (event->capture)
        return CAPTURED_EVENT;
    for (size_t at = 0; at < event->count; at++)
        if (event->places[at].stream->done < event->places[at].until)
            return NOT_READY;
    return OK;
}

int cuEventDestroy_v2(handle number)
{
    ENTER(number, 0, SAFE);
    return find_event(__func__, number)->is_dead = 1, OK;
}

/* Waits for the streams of the current context. */
int cuCtxSynchronize(void)
{
    ENTER(0, 0, CONTEXT);
    int refused = OK;
    for (size_t at = 0; at < stream_count; at++)
        if (is_active(streams[at]) && streams[at]->device == current())
            break_capture(streams[at]->capture), refused = UNSUPPORTED;
    for (size_t at = 0; !refused && at < stream_count; at++)
        if (streams[at]->device == current())
            run_all(streams[at]);
    return refused;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER(*mode, 0, ANYWHERE);
    int former = thread_mode;
    thread_mode = *mode;
    return *mode = former, OK;
}

int cuStreamIsCapturing(handle number, int *status)
{
    ENTER(number, 0, SAFE);
    struct stream *stream = find(__func__, number);
    for (size_t at = 0; stream == legacy[stream->device] && at < stream_count; at++)
        if (streams[at]->is_blocking && streams[at]->device == stream->device && is_active(streams[at]))
            return IMPLICIT;
    return *status = stream->capture ? stream->capture->state : 0, OK;
}

int cuStreamBeginCapture_v2(handle number, int mode)
{
    ENTER(number, mode, SAFE);
    struct stream *stream = find(__func__, number);
    if (stream->capture || number < 2)
        return number < 2 ? UNSUPPORTED : INVALID_VALUE;
    struct capture *capture = calloc(1, sizeof *capture);
    capture->mode = mode, capture->state = CAPTURES, capture->thread = pthread_self(), capture->origin = stream;
    stream->capture = capture, stream->recorded = stream->joined = 0;
    return OK;
}

int cuStreamEndCapture(handle number, handle *graph)
{
    ENTER(number, 0, SAFE);
    struct stream *stream = find(__func__, number);
    struct capture *capture = stream->capture;
    *graph = 0;
    if (!capture || capture->origin != stream)
        return capture ? UNMATCHED : INVALID_VALUE;
    if (capture->mode != RELAXED && !pthread_equal(capture->thread, pthread_self()))
        return WRONG_THREAD;
    int refused = capture->state == BROKEN ? INVALIDATED : OK;
    for (size_t at = 0; at < stream_count; at++)
        if (streams[at]->capture == capture) {
            if (!refused && streams[at] != stream && streams[at]->joined < streams[at]->recorded)
                refused = UNJOINED;
            streams[at]->capture = NULL;
        }
    capture->state = BROKEN;
    if (!refused) {
        *graph = FIRST_GRAPH + graph_count;
        APPEND(graphs, graph_count, capture);
    }
    return refused;
}

int cuGraphInstantiateWithFlags(handle *made, handle graph, unsigned long long flags)
{
    ENTER(graph, flags, SAFE);
    return *made = graph, graph - FIRST_GRAPH < graph_count ? OK : INVALID_VALUE;
}

int cuGraphLaunch(handle graph, handle number)
{
    ENTER(graph, number, SAFE);
    struct stream *stream = find(__func__, number);
    struct queue *recorded = &graphs[graph - FIRST_GRAPH]->graph;
    int refused = OK;
    for (size_t at = 0; !refused && at < recorded->count; at++)
        refused = queue(stream, recorded->items[at]);
    return refused;
}

#include "memory.h"
