// Mistakes of a caller: each is refused by name, consumes nothing, and keeps the last message.

#include "check.h"

static float number = 1;
static int released;

// A message of a callback, which the callback kept.
static const char *kept;

// A callback that fails in the library: its message is not the caller's.
static void release(void *token) {
    dlb_tensor *tensor = NULL;
    (void)token;
    released++;
    CHECK(dlb_export(NULL, &tensor) == DLB_STATUS_INVALID);
    kept = dlb_last_error();
    CHECK(strstr(kept, "memory: ") == kept);
}

static int fail_and_succeed(void *context) {
    release(context);
    return 0;
}

static dlb_memory memory(void) {
    return (dlb_memory){
        .struct_size = sizeof(dlb_memory), .data = &number, .release = release,
        .device = {DLB_DEVICE_CPU, 0}, .dtype = {DLB_TYPE_FLOAT, 32, 1},
    };
}

static dlb_tensor *export_number(void) {
    dlb_memory plain = memory();
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&plain, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static void refuse(const dlb_memory *bad, const char *message) {
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(bad, &tensor) == DLB_STATUS_INVALID && !tensor);
    CHECK(!strcmp(dlb_last_error(), message));
}

static void test_forgotten_fields(void) {
    dlb_memory bad = memory();
    bad.device.kind = 0;
    refuse(&bad, "device: expected one of DLB_DEVICE_*, found 0; host memory is {DLB_DEVICE_CPU, 0}");
    bad = memory();
    bad.flags = (uint64_t)1 << 40 | DLB_FLAG_READ_ONLY;
    refuse(&bad, "flags: expected the sum of DLB_FLAG_*, found other bits, as of a field that is not set");
    bad = memory();
    bad.queue = dlb_queue_new(NULL, NULL);
    refuse(&bad, "release, queue: expected one of them, found both");
    bad.release = NULL;
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&bad, &tensor) == DLB_STATUS_OK);
    dlb_release(tensor);
    CHECK(dlb_queue_pending(bad.queue) == 1);
    dlb_queue_close(bad.queue);
}

// A program that was compiled for a newer library, whose struct has more fields.
static void test_newer_structs(void) {
    struct { dlb_memory known; uint64_t more[2]; } newer = {memory(), {0, 0}};
    newer.known.struct_size = sizeof newer;
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&newer.known, &tensor) == DLB_STATUS_OK);
    dlb_release(tensor);
    newer.more[1] = 1;
    CHECK(dlb_export(&newer.known, &tensor) == DLB_STATUS_INVALID);
    CHECK(strstr(dlb_last_error(), "the program was compiled for a newer library"));
    // What was not initialised is not read.
    newer.known.struct_size = (size_t)1 << 40;
    refuse(&newer.known, "struct_size: expected 88, found 1099511627776; set it to sizeof the struct");
    newer.known.struct_size = 80;
    refuse(&newer.known, "struct_size: expected 88, found 80; set it to sizeof the struct");
}

// Calls without a status leave the message as it is, whatever the deleters do.
static void test_messages_stay(void) {
    dlb_tensor *tensor = NULL;
    struct DLManagedTensorVersioned *versioned = NULL;
    struct DLManagedTensor *legacy = NULL;
    CHECK(dlb_copy(NULL, &tensor) == DLB_STATUS_INVALID);
    const char *message = dlb_last_error();
    CHECK(!strcmp(message, "tensor: expected a tensor, found a null pointer"));
    released = 0;
    dlb_release(export_number());
    CHECK(dlb_last_error() == message && released == 1);
    CHECK(dlb_into_versioned(export_number(), &versioned) == DLB_STATUS_OK);
    dlb_delete_versioned(versioned);
    CHECK(dlb_last_error() == message && released == 2);
    CHECK(dlb_into_legacy(export_number(), &legacy) == DLB_STATUS_OK);
    dlb_delete_legacy(legacy);
    CHECK(dlb_last_error() == message && released == 3);
    dlb_queue *queue = dlb_queue_new(NULL, NULL);
    CHECK(dlb_queue_release(queue, export_number()) == DLB_STATUS_OK);
    CHECK(dlb_queue_drain(queue) == 1);
    dlb_queue_close(queue);
    CHECK(dlb_last_error() == message && released == 4);
    CHECK(!strcmp(message, "tensor: expected a tensor, found a null pointer"));
}

// A message stays valid until the next failure, also one from inside of a call that succeeds.
static void test_messages_of_callbacks_stay(void) {
    char text[8];
    for (int attempts = 0; attempts < 2; attempts++) {
        if (attempts) CHECK(dlb_attempt(fail_and_succeed, NULL, text, sizeof text) == 0 && !*text);
        else dlb_release(export_number());
        CHECK(dlb_attempt(fail_and_succeed, NULL, NULL, 0) == 0);
        CHECK(!strcmp(kept, "memory: expected a dlb_memory, found a null pointer"));
    }
}

static void test_tokens_without_a_place(void) {
    dlb_memory queued = memory();
    void *token = NULL;
    queued.release = NULL;
    queued.queue = dlb_queue_new(NULL, NULL);
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&queued, &tensor) == DLB_STATUS_OK);
    dlb_release(tensor);
    CHECK(dlb_queue_take(queued.queue, NULL, 5) == 0);
    CHECK(dlb_queue_pending(queued.queue) == 1 && dlb_queue_take(queued.queue, &token, 1) == 1);
    dlb_queue_close(queued.queue);
}

int main(void) {
    test_messages_of_callbacks_stay();
    test_tokens_without_a_place();
    test_forgotten_fields();
    test_newer_structs();
    test_messages_stay();
    puts("ok");
    return 0;
}
