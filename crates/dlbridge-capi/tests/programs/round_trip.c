// Exports an array, imports it through DLPack's C ABI, reads it and releases it, as often as the argument says.
// `cargo xtask bench --check` counts the instructions.

#include <dlbridge.h>
#include <stdlib.h>

static float numbers[6] = {1.5};
static const int64_t shape[2] = {2, 3};

static void release(void *token) { (void)token; }

static int round_trip(void) {
    const dlb_memory memory = {
        .struct_size = sizeof memory,
        .data = numbers,
        .shape = shape,
        .ndim = 2,
        .dtype = {DLB_TYPE_FLOAT, 32, 1},
        .device = {DLB_DEVICE_CPU, 0},
        .release = release,
    };
    dlb_tensor *tensor;
    struct DLManagedTensorVersioned *managed;
    if (dlb_export(&memory, &tensor) != DLB_STATUS_OK ||
        dlb_into_versioned(tensor, &managed) != DLB_STATUS_OK ||
        dlb_from_versioned(managed, &tensor) != DLB_STATUS_OK) {
        return 0;
    }
    int is_right = *(const float *)dlb_tensor_info(tensor)->data == 1.5f;
    dlb_release(tensor);
    return is_right;
}

int main(int count, char **words) {
    for (int left = count > 1 ? atoi(words[1]) : 1; left > 0; left--) {
        if (!round_trip()) {
            return 1;
        }
    }
    return 0;
}
