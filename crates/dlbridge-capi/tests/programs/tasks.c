// What programs write again and again, in one call each.

#include "check.h"
#include <pthread.h>

static float numbers[6] = {0, 1, 2, 3, 4, 5};
static const int64_t shape[2] = {2, 3};
static const dlb_dtype float32 = {DLB_TYPE_FLOAT, 32, 1}, any = {0, 0, 0};

static dlb_memory memory(void) {
    return (dlb_memory){
        .struct_size = sizeof(dlb_memory), .data = numbers, .shape = shape,
        .device = {DLB_DEVICE_CPU, 0}, .dtype = float32, .ndim = 2,
    };
}

static void expect(dlb_memory memory, dlb_dtype dtype, int ndim, unsigned properties, const char *message) {
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&memory, &tensor) == DLB_STATUS_OK);
    dlb_status status = dlb_expect(tensor, dtype, ndim, properties);
    CHECK(status == (message ? DLB_STATUS_REFUSED : DLB_STATUS_OK));
    if (message) CHECK(!strcmp(dlb_last_error(), message));
    dlb_release(tensor);
}

static void test_expect(void) {
    const unsigned all = DLB_EXPECT_HOST | DLB_EXPECT_CONTIGUOUS | DLB_EXPECT_WRITABLE;
    expect(memory(), float32, 2, all, NULL);
    expect(memory(), any, -1, 0, NULL);
    dlb_dtype float64 = {DLB_TYPE_FLOAT, 64, 1};
    expect(memory(), float64, 2, all, "dtype: expected float64, found float32");
    expect(memory(), float32, 3, all, "ndim: expected 3, found 2");
    dlb_memory other = memory();
    other.device.kind = DLB_DEVICE_CUDA;
    expect(other, float32, 2, all, "device: expected host memory, found cuda:0");
    expect(other, float32, 2, DLB_EXPECT_CONTIGUOUS, NULL);
    static const int64_t strides[2] = {1, 2};
    other = memory();
    other.strides = strides;
    expect(other, float32, 2, all,
           "strides: expected contiguous elements in row-major order, found [1, 2]; use dlb_copy");
    expect(other, float32, 2, DLB_EXPECT_HOST, NULL);
    other = memory();
    other.flags = DLB_FLAG_READ_ONLY;
    expect(other, any, 2, all, "flags: expected writable elements, found DLB_FLAG_READ_ONLY; use dlb_copy");
    CHECK(dlb_expect(NULL, any, -1, 0) == DLB_STATUS_INVALID);
    dlb_tensor *tensor = NULL;
    other = memory();
    CHECK(dlb_export(&other, &tensor) == DLB_STATUS_OK);
    CHECK(dlb_expect(tensor, any, -1, 8) == DLB_STATUS_INVALID);
    dlb_release(tensor);
}

static void test_new(void) {
    dlb_tensor *tensor = NULL;
    for (int i = 0; i < 100; i++) {
        const int64_t extents[3] = {i, 3, 2};
        CHECK(dlb_new(float32, 3, extents, &tensor) == DLB_STATUS_OK);
        const dlb_info *info = dlb_tensor_info(tensor);
        CHECK((uintptr_t)info->data % 64 == 0 && !(info->flags & DLB_FLAG_READ_ONLY));
        CHECK(info->len == (size_t)i * 6 && info->strides[0] == 6 && info->is_row_major);
        float *values = info->data;
        for (size_t at = 0; at < info->len; at++) {
            CHECK(values[at] == 0);
            values[at] = 1;
        }
        dlb_release(tensor);
    }
    CHECK(dlb_new(float32, 0, NULL, &tensor) == DLB_STATUS_OK);
    CHECK(dlb_tensor_info(tensor)->len == 1);
    dlb_release(tensor);
    const int64_t negative[1] = {-1}, huge[2] = {INT64_MAX, INT64_MAX}, large[1] = {INT64_MAX / 8};
    CHECK(dlb_new(float32, 1, negative, &tensor) == DLB_STATUS_REFUSED);
    CHECK(dlb_new(float32, 2, huge, &tensor) == DLB_STATUS_REFUSED);
    CHECK(dlb_new(float32, 1, large, &tensor) == DLB_STATUS_REFUSED);
    CHECK(strstr(dlb_last_error(), "memory"));
    CHECK(dlb_new(float32, -1, shape, &tensor) == DLB_STATUS_REFUSED);
    CHECK(dlb_new(float32, 65, shape, &tensor) == DLB_STATUS_REFUSED);
    CHECK(dlb_new(float32, 1, NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_new(float32, 1, shape, NULL) == DLB_STATUS_INVALID);
}

static void test_names(void) {
    static const char *const names[] = {
        "float32", "int8", "uint64", "bool", "bfloat16", "complex64", "float8_e4m3fn", "int4", "float32x4",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dlb_dtype dtype = any;
        char name[64];
        CHECK(dlb_dtype_parse(names[i], &dtype) == DLB_STATUS_OK);
        dlb_dtype_name(dtype, name, sizeof name);
        CHECK(!strcmp(name, names[i]));
    }
    dlb_dtype dtype = float32;
    CHECK(dlb_dtype_parse("float", &dtype) == DLB_STATUS_REFUSED && dtype.bits == 32);
    CHECK(strstr(dlb_last_error(), "\"float\""));
    CHECK(dlb_dtype_parse("float99", &dtype) == DLB_STATUS_REFUSED && dtype.bits == 32);
    CHECK(dlb_dtype_parse(NULL, &dtype) == DLB_STATUS_INVALID);
    CHECK(dlb_dtype_parse("int8", NULL) == DLB_STATUS_INVALID);
    CHECK(!strcmp(dlb_status_name(DLB_STATUS_NOT_ATTACHED), "DLB_STATUS_NOT_ATTACHED"));
    CHECK(!strcmp(dlb_status_name(DLB_STATUS_PANIC), "DLB_STATUS_PANIC"));
    CHECK(!strcmp(dlb_status_name(DLB_STATUS_PANIC + 1), "unknown status"));
    CHECK(!strcmp(dlb_status_name(-1), "unknown status"));
    int major = -1, minor = -1;
    CHECK(sscanf(dlb_version(), "%d.%d.", &major, &minor) == 2 && major >= 0 && minor >= 0);
}

static int import_null(void *out) { return dlb_from_legacy(NULL, out); }

static int succeed(void *context) {
    (void)context;
    return 0;
}

static char message[64];

static void *attempt(void *out) {
    CHECK(dlb_attempt(import_null, out, message, sizeof message) == DLB_STATUS_INVALID);
    CHECK(!strcmp(dlb_last_error(), ""));
    return NULL;
}

// The message is read by another thread than the one whose call failed.
static void test_attempt(void) {
    dlb_tensor *tensor = NULL;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, attempt, &tensor) == 0);
    pthread_join(thread, NULL);
    CHECK(!strcmp(message, "managed: expected a managed tensor, found a null pointer"));
    CHECK(dlb_copy(NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_attempt(import_null, &tensor, message, 8) == DLB_STATUS_INVALID);
    CHECK(!strcmp(message, "managed"));
    CHECK(dlb_attempt(succeed, NULL, message, 8) == 0 && !strcmp(message, ""));
    CHECK(dlb_attempt(NULL, NULL, message, sizeof message) == DLB_STATUS_INVALID);
    CHECK(!strcmp(message, "call: expected a function, found a null pointer"));
    CHECK(dlb_attempt(import_null, &tensor, NULL, 0) == DLB_STATUS_INVALID);
    CHECK(!strcmp(dlb_last_error(), "tensor: expected a tensor, found a null pointer"));
}

int main(void) {
    test_expect();
    test_new();
    test_names();
    test_attempt();
    puts("ok");
    return 0;
}
