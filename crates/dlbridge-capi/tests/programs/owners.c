// Exports, imports, refusals and queues, as a C program uses them.
// Every owner is counted: each one is released once, whatever fails.

#include <dlbridge.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("line %d: %s (%s)\n", __LINE__, #condition,                 \
                   dlb_last_error());                                          \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

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
    dlb_memory memory = {0};
    memory.data = numbers;
    memory.shape = shape;
    memory.device = (dlb_device){1, 0};
    memory.dtype = (dlb_dtype){2, 32, 1};
    memory.rank = 2;
    return memory;
}

static dlb_tensor *export_numbers(const dlb_memory *memory) {
    dlb_tensor *tensor = NULL;
    dlb_owner owner = {&one, release, NULL};
    CHECK(dlb_export(memory, owner, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static void test_info_and_release(void) {
    dlb_memory plain = memory();
    released = 0;
    dlb_tensor *tensor = export_numbers(&plain);
    const dlb_info *info = dlb_tensor_info(tensor);
    CHECK(info->data == numbers && info->rank == 2 && info->len == 6);
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
    dlb_release(back);
    CHECK(released == 2);

    plain.flags = 1;
    CHECK(dlb_into_legacy(export_numbers(&plain), &legacy) == DLB_STATUS_REFUSED);
    CHECK(strstr(dlb_last_error(), "read-only") != NULL && released == 3);
    CHECK(dlb_into_versioned(export_numbers(&plain), &versioned) == DLB_STATUS_OK);
    CHECK(versioned->flags == 1);
    versioned->deleter(versioned);
    CHECK(released == 4);
}

static void test_refusals(void) {
    dlb_tensor *tensor = NULL;
    dlb_owner owner = {&one, release, NULL};
    released = 0;
    CHECK(dlb_export(NULL, owner, &tensor) == DLB_STATUS_INVALID && released == 1);
    dlb_memory bad = memory();
    CHECK(dlb_export(&bad, owner, NULL) == DLB_STATUS_INVALID && released == 2);
    bad.rank = -1;
    CHECK(dlb_export(&bad, owner, &tensor) == DLB_STATUS_REFUSED && released == 3);
    CHECK(!strcmp(dlb_last_error(), "ndim: found -1, wanted 0 to 64"));
    bad = memory();
    bad.data = NULL;
    CHECK(dlb_export(&bad, owner, &tensor) == DLB_STATUS_REFUSED && released == 4);
    bad = memory();
    bad.shape = NULL;
    CHECK(dlb_export(&bad, owner, &tensor) == DLB_STATUS_REFUSED && released == 5);
    bad = memory();
    bad.dtype.bits = 0;
    CHECK(dlb_export(&bad, owner, &tensor) == DLB_STATUS_REFUSED && released == 6);
    CHECK(tensor == NULL);

    CHECK(dlb_from_versioned(NULL, &tensor) == DLB_STATUS_REFUSED);
    CHECK(dlb_copy(NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_into_versioned(NULL, NULL) == DLB_STATUS_INVALID);
    CHECK(dlb_into_capsule(NULL, 1, NULL) == DLB_STATUS_INVALID);
    CHECK(dlb_use_python(NULL) == DLB_STATUS_INVALID);
    // No Python in this program. Whoever gives a tensor away still gives it away.
    struct _object *object = NULL;
    CHECK(dlb_from_python(NULL, &tensor) == DLB_STATUS_NOT_ATTACHED);
    bad = memory();
    CHECK(dlb_into_python(export_numbers(&bad), &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(released == 7);
    CHECK(dlb_share_python(&bad, owner, &object) == DLB_STATUS_NOT_ATTACHED && released == 8);
    CHECK(!strcmp(dlb_last_error(), "python: found none in this process"));
}

static int woken;

static int wake(void *context) { return *(int *)context += 1; }

static void *drop(void *tensor) {
    dlb_release(tensor);
    return NULL;
}

static void test_queue(void) {
    const dlb_queue *queue = dlb_queue_new(wake, &woken);
    dlb_memory plain = memory();
    dlb_tensor *tensors[3];
    for (int i = 0; i < 3; i++) {
        dlb_owner owner = {&tensors[i], NULL, queue};
        CHECK(dlb_export(&plain, owner, &tensors[i]) == DLB_STATUS_OK);
    }
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
    dlb_queue_release(queue, export_numbers(&plain));
    dlb_queue_release(queue, NULL);
    CHECK(released == 0 && woken == 2);
    CHECK(dlb_queue_drain(queue) == 1 && released == 1 && dlb_queue_drain(queue) == 0);

    // An export outlives the queue's name for it; nobody is woken any more.
    dlb_owner owner = {NULL, NULL, queue};
    CHECK(dlb_export(&plain, owner, &tensors[0]) == DLB_STATUS_OK);
    dlb_queue_mute(queue);
    dlb_queue_close(queue);
    dlb_queue_close(NULL);
    dlb_release(tensors[0]);
    CHECK(woken == 2);
}

int main(void) {
    CHECK(dlb_api_version() == 1);
    CHECK(!strcmp(dlb_last_error(), ""));
    test_info_and_release();
    test_copy();
    test_both_abis();
    test_refusals();
    test_queue();
    puts("ok");
    return 0;
}
