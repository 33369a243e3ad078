// Sealed tensors, as a C program makes and opens them (Linux).

#include "check.h"
#include <fcntl.h>
#include <unistd.h>

static float numbers[6] = {0, 1, 2, 3, 4, 5};
static const int64_t shape[2] = {2, 3};

static dlb_tensor *export_numbers(void) {
    dlb_memory memory = {
        .struct_size = sizeof memory,
        .data = numbers,
        .shape = shape,
        .ndim = 2,
        .dtype = {DLB_TYPE_FLOAT, 32, 1},
        .device = {DLB_DEVICE_CPU, 0},
    };
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&memory, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static void check_refusals(dlb_sealed *sealed) {
    dlb_sealed *other = NULL;
    dlb_tensor *tensor = NULL;
    int device = open("/dev/zero", O_RDWR);
    CHECK(dlb_sealed_open(device, &other) == DLB_STATUS_REFUSED);
    CHECK(strstr(dlb_last_error(), "found a device"));
    close(device);
    CHECK(dlb_sealed_open(device, &other) == DLB_STATUS_REFUSED);
    CHECK(dlb_sealed_open(-1, &other) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_open(0, NULL) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_tensor(sealed, "none", &tensor) == DLB_STATUS_REFUSED);
    CHECK(strstr(dlb_last_error(), "none"));
    CHECK(dlb_sealed_tensor(sealed, "\xff", &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_tensor(sealed, NULL, &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_tensor(NULL, "x", &tensor) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_private(sealed, "x", NULL) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_copy(NULL, NULL, 1, &other) == DLB_STATUS_INVALID);
    CHECK(dlb_sealed_count(NULL) == 0 && dlb_sealed_descriptor(NULL) == -1);
    CHECK(dlb_sealed_name(sealed, 2) == NULL && dlb_sealed_name(NULL, 0) == NULL);
    dlb_sealed_close(NULL);
    CHECK(!other && !tensor);
}

int main(void) {
    dlb_tensor *tensor = export_numbers();
    const char *names[] = {"x", "y"};
    const dlb_tensor *tensors[] = {tensor, tensor};
    dlb_sealed *made = NULL, *sealed = NULL;
    CHECK(dlb_sealed_copy(names, tensors, 2, &made) == DLB_STATUS_OK);
    dlb_release(tensor);
    // The other process would get the descriptor by SCM_RIGHTS.
    CHECK(dlb_sealed_open(dlb_sealed_descriptor(made), &sealed) == DLB_STATUS_OK);
    dlb_sealed_close(made);
    CHECK(dlb_sealed_count(sealed) == 2 && !strcmp(dlb_sealed_name(sealed, 1), "y"));
    check_refusals(sealed);

    dlb_tensor *x = NULL, *again = NULL, *mine = NULL;
    CHECK(dlb_sealed_tensor(sealed, "x", &x) == DLB_STATUS_OK);
    CHECK(dlb_sealed_private(sealed, "x", &mine) == DLB_STATUS_OK);
    const dlb_info *info = dlb_tensor_info(x);
    CHECK(info->flags == DLB_FLAG_READ_ONLY && info->ndim == 2 && info->shape[1] == 3);
    CHECK((uintptr_t)info->data % 64 == 0 && !memcmp(info->data, numbers, sizeof numbers));
    CHECK(dlb_tensor_info(mine)->flags == 0);
    // A write to the private one, and one that ignores the flag, change no other tensor.
    ((float *)dlb_tensor_info(mine)->data)[0] = 9;
    ((float *)info->data)[1] = 9;
    CHECK(((float *)info->data)[0] == 0 && ((float *)dlb_tensor_info(mine)->data)[1] == 1);
    CHECK(dlb_sealed_tensor(sealed, "x", &again) == DLB_STATUS_OK);
    dlb_sealed_close(sealed);
    CHECK(!memcmp(dlb_tensor_info(again)->data, numbers, sizeof numbers));
    dlb_release(x);
    dlb_release(again);
    dlb_release(mine);
    puts("ok");
    return 0;
}
