/* Plays NVIDIA's driver library: writes each call to the file named in FAKE_DRIVER_LOG.
 *
 * Handles are numbers that tell what they are: contexts 0xc0.., events 0xe0.. A function named in
 * FAKE_DRIVER_FAILS fails with error 201. Device memory is everything from 0x7000 to 0x7fff, on
 * device 1, and everything from 0x8000 on, on device 0.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uintptr_t handle;

static uintptr_t events = 0xe000;

static int note(const char *function, handle first, handle second)
{
    const char *path = getenv("FAKE_DRIVER_LOG");
    const char *failing = getenv("FAKE_DRIVER_FAILS");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s %zx %zx\n", function, (size_t)first, (size_t)second);
        fclose(log);
    }
    return failing && strcmp(failing, function) == 0 ? 201 : 0;
}

int cuInit(unsigned flags) { return note("init", flags, 0); }

int cuGetErrorName(int error, const char **name)
{
    *name = error == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : NULL;
    return error == 201 ? 0 : 1;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return note("device", (handle)ordinal, 0);
}

int cuDevicePrimaryCtxRetain(handle *context, int device)
{
    *context = 0xc000 + (handle)device;
    return note("retain", (handle)device, 0);
}

int cuCtxPushCurrent_v2(handle context) { return note("push", context, 0); }

int cuCtxPopCurrent_v2(handle *context)
{
    *context = 0;
    return note("pop", 0, 0);
}

int cuStreamGetCtx(handle stream, handle *context)
{
    *context = 0xc100;
    return note("context_of", stream, 0);
}

int cuEventCreate(handle *event, unsigned flags)
{
    *event = ++events;
    return note("create", *event, flags);
}

int cuEventRecord(handle event, handle stream) { return note("record", event, stream); }

int cuStreamWaitEvent(handle stream, handle event, unsigned flags)
{
    (void)flags;
    return note("wait", stream, event);
}

int cuEventSynchronize(handle event) { return note("synchronize", event, 0); }

int cuEventDestroy_v2(handle event) { return note("destroy", event, 0); }

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
    int status = note("pointer", (handle)attribute, (handle)pointer);
    *(int *)data = pointer < 0x8000;
    return pointer < 0x7000 ? 1 : status;
}
