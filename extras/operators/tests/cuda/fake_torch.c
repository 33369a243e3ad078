/* A fake of the functions of PyTorch's C shim that an operator calls, for its kernel for CUDA: this machine has no
 * GPU, without which PyTorch makes no tensor of one. Tensors are made by the test. Memory is the host's, as that of
 * the fake driver is. As PyTorch's, its copies are queued on the current stream, and its device guard changes no context.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM = 4 };

struct tensor {
    int64_t ndim;
    int64_t sizes[4], strides[4];
    int32_t dtype, device, index;
    void *data;
};

typedef void kernel(uint64_t *, uint64_t, uint64_t);

struct entry {
    const char *key;
    char name[32];
    kernel *call;
};

static struct entry kernels[64];
static int registered;
uint64_t promised;
/* What the test sets, and reads. */
void *current_stream;
int32_t stream_index = -1, guarded = -1, guards, live, copies;
char message[1024];

/* A newer one than the operator was built for: 2.99. */
uint64_t aoti_torch_abi_version(void) { return UINT64_C(0x0263) << 48; }

int aoti_torch_library_init_fragment(const char *space, const char *file, uint32_t line, void **made)
{
    (void)space, (void)file, (void)line;
    *made = NULL;
    return 0;
}

/* The library is the name of its key, which is static. */
int aoti_torch_library_init_impl(const char *space, const char *key, const char *file, uint32_t line, void **made)
{
    (void)space, (void)file, (void)line;
    *made = (void *)key;
    return 0;
}

int aoti_torch_library_def(void *library, const char *schema)
{
    (void)library, (void)schema;
    return 0;
}

int torch_library_impl(void *library, const char *name, kernel *call, uint64_t version)
{
    promised = version;
    struct entry *entry = &kernels[registered++];
    entry->key = library;
    strncpy(entry->name, name, sizeof entry->name - 1);
    entry->call = call;
    return 0;
}

kernel *find(const char *key, const char *name)
{
    for (int at = 0; at < registered; at++)
        if (!strcmp(kernels[at].key, key) && !strcmp(kernels[at].name, name))
            return kernels[at].call;
    return NULL;
}

#define GET(function, type, field)                                                                                     \
    int function(struct tensor *tensor, type *to)                                                                      \
    {                                                                                                                  \
        *to = tensor->field;                                                                                           \
        return 0;                                                                                                      \
    }
GET(aoti_torch_get_dim, int64_t, ndim)
GET(aoti_torch_get_sizes, int64_t *, sizes)
GET(aoti_torch_get_strides, int64_t *, strides)
GET(aoti_torch_get_dtype, int32_t, dtype)
GET(aoti_torch_get_device_type, int32_t, device)
GET(aoti_torch_get_device_index, int32_t, index)
GET(torch_get_const_data_ptr, void *, data)
GET(torch_get_mutable_data_ptr, void *, data)

int aoti_torch_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device,
                             int32_t index, struct tensor **made)
{
    struct tensor *tensor = calloc(1, sizeof *tensor);
    int64_t count = 1;
    for (int64_t axis = 0; axis < ndim; axis++) {
        tensor->sizes[axis] = sizes[axis];
        tensor->strides[axis] = strides[axis];
        count *= sizes[axis];
    }
    tensor->ndim = ndim, tensor->dtype = dtype, tensor->device = device, tensor->index = index;
    tensor->data = calloc(count + 1, 8);
    live++;
    *made = tensor;
    return 0;
}

/* The memory stays, for work that is still queued: so the caching allocator keeps it. */
int aoti_torch_delete_tensor_object(struct tensor *tensor)
{
    free(tensor);
    live--;
    return 0;
}

/* Broadcasts, and takes any strides. Each element is a copy of its own. */
int aoti_torch_copy_(struct tensor *to, struct tensor *from, int32_t non_blocking)
{
    (void)non_blocking;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*copy)(uintptr_t, uintptr_t, size_t, void *) =
        (int (*)(uintptr_t, uintptr_t, size_t, void *))dlsym(driver, "cuMemcpyDtoDAsync_v2");
    int (*current)(void **) = (int (*)(void **))dlsym(driver, "cuCtxGetCurrent");
    int (*push)(void *) = (int (*)(void *))dlsym(driver, "cuCtxPushCurrent_v2");
    int (*pop)(void **) = (int (*)(void **))dlsym(driver, "cuCtxPopCurrent_v2");
    /* The runtime makes the primary context of the device current where none is. */
    void *context = NULL, *primary = (void *)(uintptr_t)(0xc000 + to->index);
    int is_pushed = !current(&context) && !context && !push(primary), failed = 0;
    int64_t count = 1;
    for (int64_t axis = 0; axis < to->ndim; axis++)
        count *= to->sizes[axis];
    for (int64_t at = 0; at < count && !failed; at++) {
        int64_t rest = at, own = 0, other = 0;
        for (int64_t axis = to->ndim; axis--; rest /= to->sizes[axis]) {
            int64_t index = rest % to->sizes[axis], behind = axis + from->ndim - to->ndim;
            own += index * to->strides[axis];
            if (behind >= 0 && from->sizes[behind] != 1)
                other += index * from->strides[behind];
        }
        failed = copy((uintptr_t)to->data + own * ITEM, (uintptr_t)from->data + other * ITEM, ITEM, current_stream);
    }
    copies++;
    if (is_pushed)
        pop(&context);
    return failed;
}

int torch_delete_stable_ivalue(uint64_t *value)
{
    free(value);
    return 0;
}

int aoti_torch_create_device_guard(int32_t index, void **made)
{
    guarded = index;
    guards++;
    *made = &guards;
    return 0;
}

int aoti_torch_delete_device_guard(void *guard)
{
    (void)guard;
    guards--;
    return 0;
}

int aoti_torch_get_current_cuda_stream(int32_t index, void **stream)
{
    stream_index = index;
    *stream = current_stream;
    return 0;
}

/* PyTorch's throws. */
void aoti_torch_check(int holds, const char *function, const char *file, uint32_t line, const char *text)
{
    (void)holds, (void)function, (void)file, (void)line;
    strncpy(message, text, sizeof message - 1);
}
