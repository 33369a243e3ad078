// Exports, imports, refusals and queues, as a C program uses them.
// Every owner is counted: each one is released once, whatever fails.

#include "check.h"
#include <pthread.h>

// As dlpack.h has it: what a consumer reads of a tensor of DLPack 1.x.
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    void *data;
    dlb_device device;
    int32_t ndim;
    dlb_dtype dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

static float numbers[6] = {0, 1, 2, 3, 4, 5};
static const int64_t shape[2] = {2, 3};
static int released;

static void release(void *token) { released += *(int *)token; }

static int one = 1;

static dlb_memory memory(void) {
    return (dlb_memory){
        .struct_size = sizeof(dlb_memory),
        .data = numbers,
        .shape = shape,
        .ndim = 2,
        .dtype = {DLB_TYPE_FLOAT, 32, 1},
        .device = {DLB_DEVICE_CPU, 0},
        .token = &one,
        .release = release,
    };
}

static dlb_tensor *export_numbers(const dlb_memory *memory) {
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(memory, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static void test_info_and_release(void) {
    dlb_memory plain = memory();
    released = 0;
    dlb_tensor *tensor = export_numbers(&plain);
    const dlb_info *info = dlb_tensor_info(tensor);
    CHECK(info->data == numbers && info->ndim == 2 && info->len == 6);
    CHECK(info->shape[1] == 3 && info->strides[0] == 3 && info->strides[1] == 1);
    CHECK(info->is_host && info->is_row_major && !info->is_column_major);
    char name[64];
    CHECK(dlb_dtype_name(info->dtype, name, sizeof name) == 7 && !strcmp(name, "float32"));
    CHECK(dlb_device_name(info->device, name, 3) == 3 && !strcmp(name, "cp"));
    CHECK(released == 0);
    dlb_release(tensor);
    CHECK(released == 1);
    dlb_release(NULL);
    CHECK(dlb_tensor_info(NULL) == NULL);
}

static void test_copy(void) {
    static const int64_t strides[2] = {1, 2};
    dlb_memory strided = memory();
    strided.strides = strides;
    released = 0;
    dlb_tensor *tensor = export_numbers(&strided), *copy = NULL;
    CHECK(dlb_copy(tensor, &copy) == DLB_STATUS_OK);
    dlb_release(tensor);
    const float *values = dlb_tensor_info(copy)->data;
    CHECK(values[0] == 0 && values[1] == 2 && values[2] == 4 && values[3] == 1);
    CHECK(dlb_tensor_info(copy)->flags == 2 && released == 1);
    dlb_release(copy);
}

static void test_both_abis(void) {
    dlb_memory plain = memory();
    released = 0;
    struct DLManagedTensorVersioned *versioned = NULL;
    CHECK(dlb_into_versioned(export_numbers(&plain), &versioned) == DLB_STATUS_OK);
    CHECK(versioned->major == 1 && versioned->data == numbers && versioned->shape[0] == 2);
    dlb_tensor *back = NULL;
    CHECK(dlb_from_versioned(versioned, &back) == DLB_STATUS_OK);
    dlb_release(back);
    CHECK(released == 1);

    struct DLManagedTensor *legacy = NULL;
    CHECK(dlb_into_legacy(export_numbers(&plain), &legacy) == DLB_STATUS_OK);
    CHECK(dlb_from_legacy(legacy, &back) == DLB_STATUS_OK);
    CHECK(dlb_tensor_info(back)->flags == DLB_FLAG_READ_ONLY && dlb_is_legacy_read_only(back));
    dlb_release(back);
    CHECK(released == 2);

    // What fails consumes nothing: the tensor can be exported another way.
    plain.flags = DLB_FLAG_READ_ONLY;
    dlb_tensor *read_only = export_numbers(&plain);
    CHECK(!dlb_is_legacy_read_only(read_only) && !dlb_is_legacy_read_only(NULL));
    CHECK(dlb_into_legacy(read_only, &legacy) == DLB_STATUS_REFUSED);
    CHECK(strstr(dlb_last_error(), "read-only") != NULL && released == 2);
    CHECK(dlb_into_versioned(read_only, NULL) == DLB_STATUS_INVALID && released == 2);
    CHECK(dlb_into_versioned(read_only, &versioned) == DLB_STATUS_OK);
    CHECK(versioned->flags == DLB_FLAG_READ_ONLY);
    versioned->deleter(versioned);
    CHECK(released == 3);

    CHECK(dlb_into_versioned(export_numbers(&plain), &versioned) == DLB_STATUS_OK);
    dlb_delete_versioned(versioned);
    dlb_delete_versioned(NULL);
    dlb_delete_legacy(NULL);
    CHECK(released == 4);
}

static void test_byte_offset(void) {
    static const int64_t rest[1] = {4};
    dlb_memory part = memory();
    part.shape = rest;
    part.ndim = 1;
    part.byte_offset = 2 * sizeof(float);
    dlb_tensor *tensor = export_numbers(&part);
    CHECK(dlb_tensor_info(tensor)->data == numbers + 2);
    CHECK(dlb_tensor_info(tensor)->byte_offset == 0);
    dlb_release(tensor);
}

// One tensor for two consumers: the memory is released after the last of them.
static void test_retain(void) {
    dlb_memory copied = memory();
    copied.flags = DLB_FLAG_IS_COPIED;
    released = 0;
    dlb_tensor *tensor = export_numbers(&copied);
    CHECK(dlb_retain(tensor) == tensor && dlb_retain(NULL) == NULL);
    struct DLManagedTensorVersioned *first = NULL, *second = NULL;
    CHECK(dlb_into_versioned(tensor, &first) == DLB_STATUS_OK);
    CHECK(first->data == numbers && first->strides[0] == 3);
    CHECK(first->flags == 0);
    dlb_tensor *legacy_too = dlb_retain(tensor);
    struct DLManagedTensor *legacy = NULL;
    CHECK(dlb_into_legacy(legacy_too, &legacy) == DLB_STATUS_OK);
    CHECK(dlb_into_versioned(tensor, &second) == DLB_STATUS_OK);
    CHECK(second->flags == 0);
    first->deleter(first);
    dlb_delete_legacy(legacy);
    CHECK(released == 0);
    second->deleter(second);
    CHECK(released == 1);

    // The only reference left has the memory for itself again.
    tensor = dlb_retain(export_numbers(&copied));
    dlb_release(tensor);
    CHECK(dlb_into_versioned(tensor, &first) == DLB_STATUS_OK);
    CHECK(first->flags == DLB_FLAG_IS_COPIED && released == 1);
    first->deleter(first);
    CHECK(released == 2);
}

static void test_refusals(void) {
    dlb_tensor *tensor = NULL;
    released = 0;
    CHECK(dlb_export(NULL, &tensor) == DLB_STATUS_INVALID);
    dlb_memory bad = memory();
    CHECK(dlb_export(&bad, NULL) == DLB_STATUS_INVALID);
    bad.struct_size = 0;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_INVALID);
    CHECK(strstr(dlb_last_error(), "struct_size") != NULL);
    bad = memory();
    bad.ndim = -1;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_REFUSED);
    CHECK(strstr(dlb_last_error(), "ndim: expected 0 to 64, found -1") != NULL);
    bad = memory();
    bad.data = NULL;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_REFUSED);
    bad = memory();
    bad.shape = NULL;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_REFUSED);
    bad = memory();
    bad.dtype.bits = 0;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_REFUSED);
    // Elements below address 0 are rejected here, not by the first consumer.
    static const int64_t backwards[2] = {-3, -1};
    bad = memory();
    bad.data = (void *)8;
    bad.strides = backwards;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_REFUSED);
    CHECK(tensor == NULL && released == 0);

    // Null is the same mistake everywhere.
    struct _object *object = NULL;
    struct DLManagedTensorVersioned *versioned = NULL;
    struct DLManagedTensor *legacy = NULL;
    CHECK(dlb_from_versioned(NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_from_legacy(NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_from_python(NULL, NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_copy(NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_into_versioned(NULL, &versioned) == DLB_STATUS_INVALID);
    CHECK(dlb_into_legacy(NULL, &legacy) == DLB_STATUS_INVALID);
    CHECK(dlb_into_python(NULL, &object) == DLB_STATUS_INVALID);
    CHECK(dlb_into_capsule(NULL, 1, &object) == DLB_STATUS_INVALID);
    CHECK(dlb_export_python(NULL, &object) == DLB_STATUS_INVALID);
    CHECK(dlb_use_python(NULL) == DLB_STATUS_INVALID);
    CHECK(dlb_queue_release(NULL, NULL) == DLB_STATUS_INVALID);

    // No Python in this program.
    bad = memory();
    tensor = export_numbers(&bad);
    CHECK(dlb_from_python((struct _object *)&one, NULL, &tensor) == DLB_STATUS_NOT_ATTACHED);
    CHECK(dlb_into_python(tensor, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(dlb_into_capsule(tensor, 1, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(dlb_export_python(&bad, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(!strcmp(dlb_last_error(), "python: expected one in this process, found none"));
    CHECK(released == 0);
    dlb_release(tensor);
    CHECK(released == 1);
}

static int woken;

static int wake(void *context) { return *(int *)context += 1; }

static void *drop(void *tensor) {
    dlb_release(tensor);
    return NULL;
}

static dlb_tensor *export_to(dlb_queue *queue, void *token) {
    dlb_memory queued = memory();
    queued.release = NULL;
    queued.queue = queue;
    queued.token = token;
    return export_numbers(&queued);
}

static void test_queue(void) {
    woken = 0;
    dlb_queue *queue = dlb_queue_new(wake, &woken);
    dlb_memory plain = memory();
    dlb_tensor *tensors[3];
    for (int i = 0; i < 3; i++)
        tensors[i] = export_to(queue, &tensors[i]);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, drop, tensors[i]) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(woken == 1 && dlb_queue_pending(queue) == 3);
    void *tokens[4];
    CHECK(dlb_queue_take(queue, tokens, 2) == 2 && dlb_queue_take(queue, tokens + 2, 2) == 1);
    int seen = 0;
    for (int i = 0; i < 3; i++)
        seen |= 1 << ((dlb_tensor **)tokens[i] - tensors);
    CHECK(seen == 7);

    released = 0;
    CHECK(dlb_queue_release(queue, export_numbers(&plain)) == DLB_STATUS_OK);
    CHECK(dlb_queue_release(queue, NULL) == DLB_STATUS_OK);
    CHECK(released == 0 && woken == 2);
    CHECK(dlb_queue_drain(queue) == 1 && released == 1 && dlb_queue_drain(queue) == 0);

    // An export outlives the queue's name for it; `wake` is not called any more.
    tensors[0] = export_to(queue, NULL);
    dlb_queue_mute(queue);
    dlb_queue_close(queue);
    dlb_release(tensors[0]);
    CHECK(woken == 2);
}

// A tensor that stays in the queue takes no wake from the tokens.
static void test_wakes(void) {
    woken = 0;
    dlb_queue *queue = dlb_queue_new(wake, &woken);
    dlb_memory plain = memory();
    CHECK(dlb_queue_release(queue, export_numbers(&plain)) == DLB_STATUS_OK);
    CHECK(woken == 1);
    for (int i = 0; i < 5; i++) {
        void *token;
        dlb_release(export_to(queue, &one));
        CHECK(woken == i + 2);
        CHECK(dlb_queue_take(queue, &token, 1) == 1 && token == &one);
    }
    CHECK(dlb_queue_drain(queue) == 1);
    dlb_queue_close(queue);
}

static void test_null_queues(void) {
    void *token;
    dlb_memory plain = memory();
    dlb_tensor *tensor = export_numbers(&plain);
    released = 0;
    CHECK(dlb_queue_release(NULL, tensor) == DLB_STATUS_INVALID && released == 0);
    dlb_release(tensor);
    CHECK(dlb_queue_take(NULL, &token, 1) == 0 && dlb_queue_drain(NULL) == 0);
    CHECK(dlb_queue_pending(NULL) == 0);
    dlb_queue_mute(NULL);
    dlb_queue_close(NULL);
}

int main(void) {
    CHECK(dlb_api_version() == DLB_API_VERSION);
    CHECK(!strcmp(dlb_last_error(), ""));
    test_info_and_release();
    test_copy();
    test_both_abis();
    test_byte_offset();
    test_retain();
    test_refusals();
    test_queue();
    test_wakes();
    test_null_queues();
    puts("ok");
    return 0;
}
