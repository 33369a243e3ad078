// Chains of tensors that keep each other, which are released with little stack.

#include <dlbridge.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum { LONG = 100000, STACK = 256 << 10 };

// DLPack 1.x.
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    void *data;
    dlb_device device;
    int32_t ndim;
    dlb_dtype dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

static float number = 1;
static int64_t shape[] = {1};
static int released;

static void release(void *token) {
    released++;
    dlb_release(token);
}

// A tensor whose owner has the one before.
static dlb_tensor *over(dlb_tensor *before) {
    dlb_memory memory = {.struct_size = sizeof memory, .data = &number, .shape = shape, .ndim = 1};
    memory.device = (dlb_device){DLB_DEVICE_CPU, 0};
    memory.dtype = (dlb_dtype){DLB_TYPE_FLOAT, 32, 1};
    memory.token = before;
    memory.release = release;
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&memory, &tensor) == DLB_STATUS_OK);
    return tensor;
}

// An import of an export that shared its tensor, which was released since.
static dlb_tensor *again(dlb_tensor *before) {
    if (!before) return over(NULL);
    struct DLManagedTensorVersioned *managed = NULL;
    dlb_retain(before);
    CHECK(dlb_into_versioned(before, &managed) == DLB_STATUS_OK);
    dlb_release(before);
    dlb_tensor *tensor = NULL;
    CHECK(dlb_from_versioned(managed, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static void delete(struct DLManagedTensorVersioned *managed) {
    dlb_tensor *before = managed->context;
    free(managed);
    release(before);
}

// A producer's tensor that has the one before.
static dlb_tensor *produced(dlb_tensor *before) {
    struct DLManagedTensorVersioned *managed = calloc(1, sizeof *managed);
    CHECK(managed != NULL);
    *managed = (struct DLManagedTensorVersioned){
        .major = 1, .context = before, .deleter = delete, .data = &number, .ndim = 1, .shape = shape};
    managed->device = (dlb_device){DLB_DEVICE_CPU, 0};
    managed->dtype = (dlb_dtype){DLB_TYPE_FLOAT, 32, 1};
    dlb_tensor *tensor = NULL;
    CHECK(dlb_from_versioned(managed, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static void *run(void *context) {
    (void)context;
    struct {
        dlb_tensor *(*step)(dlb_tensor *before);
        int owners;
    } kinds[] = {{over, LONG}, {again, 1}, {produced, LONG}};
    for (int kind = 0; kind < 3; kind++) {
        dlb_tensor *tensor = NULL;
        for (int i = 0; i < LONG; i++) tensor = kinds[kind].step(tensor);
        released = 0;
        dlb_release(tensor);
        CHECK(released == kinds[kind].owners);
    }
    return NULL;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
    puts("ok");
    return 0;
}
