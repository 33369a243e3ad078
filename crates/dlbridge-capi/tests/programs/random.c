// Random calls of all functions, with exact accounts: the arguments are the number of calls and,
// if Python's objects take part, libpython. An owner is released when, and only when, nothing uses
// its memory any more.

#include <dlbridge.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct _object PyObject;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("call %ld, line %d: %s (%s)\n", calls, __LINE__,            \
                   #condition, dlb_last_error());                              \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static long calls;
static void *python;

// A function of Python by its name, result and arguments.
#define FN(name, result, ...)                                                  \
    (*(result(**)(__VA_ARGS__))&(void *){dlsym(python, name)})

static uint64_t state = 88172645463325252u;

static unsigned below(unsigned limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % limit;
}

// An exported memory, how many things use it, and how often its owner was released.
enum { OWNERS = 4096 };
static struct owner { int uses, released, is_queued, flags; } owners[OWNERS];
// As many as the largest memory has: 24 elements of 16 bytes.
static float numbers[96];

static void release(void *token) { ((struct owner *)token)->released++; }

// Something that uses an owner's memory. Copies have none.
typedef enum { TENSOR, VERSIONED, LEGACY, OBJECT, CAPSULE } kind;
typedef struct { kind kind; void *pointer; struct owner *owner; int was_legacy; } item;

enum { ITEMS = 64 };
static item items[ITEMS];
static int count;
static dlb_queue *queue;
static struct owner *waiting[ITEMS * ITEMS];
static int waits, tokens_seen, wakes;

static int wake(void *context) { return ++*(int *)context; }

static void add(kind made, void *pointer, struct owner *owner) {
    CHECK(pointer && count < ITEMS);
    items[count++] = (item){made, pointer, owner, 0};
    if (owner) owner->uses++;
}

static void take_tokens(void) {
    void *tokens[3];
    size_t found;
    do {
        found = dlb_queue_take(queue, tokens, 3);
        for (size_t i = 0; i < found; i++, tokens_seen++) release(tokens[i]);
    } while (found == 3);
}

// An owner that is not used any more was released once, after its token was taken.
static void check(struct owner *owner) {
    if (!owner) return;
    if (owner->is_queued && owner->uses == 0 && !owner->released) take_tokens();
    CHECK(owner->released == (owner->uses == 0));
}

static void remove_item(item *which) {
    struct owner *owner = which->owner;
    *which = items[--count];
    if (owner) owner->uses--;
    check(owner);
}

static void drain(void) {
    size_t expected = (size_t)waits;
    CHECK(dlb_queue_drain(queue) == expected);
    for (int i = 0; i < waits; i++)
        if (waiting[i]) waiting[i]->uses--;
    for (int i = 0; i < waits; i++) check(waiting[i]);
    waits = 0;
}

static void export(void) {
    static int next;
    struct owner *owner = &owners[next++ % OWNERS];
    if (owner->uses) return;
    *owner = (struct owner){0, 0, (int)below(2), below(2) ? 0 : (int)below(4)};
    static const dlb_dtype dtypes[] = {
        {DLB_TYPE_FLOAT, 32, 1}, {DLB_TYPE_FLOAT, 32, 4}, {DLB_TYPE_INT, 4, 1},
        {DLB_TYPE_UINT, 2, 1}, {DLB_TYPE_FLOAT4_E2M1FN, 4, 2}, {DLB_TYPE_COMPLEX, 128, 1},
    };
    dlb_dtype dtype = dtypes[below(6)];
    int64_t shape[12], strides[12], len = 1;
    int ndim = (int)below(13), first = 0, is_narrow = dtype.bits < 8;
    for (int i = 0; i < ndim; i++) {
        shape[i] = below(4) ? 1 : below(5);
        if (len * shape[i] > 24) shape[i] = 1;
        len *= shape[i];
    }
    // Some axes are reversed, some repeat their elements. Packed elements are contiguous.
    int is_strided = !is_narrow && below(2);
    int64_t step = 1;
    for (int i = ndim; i-- > 0; step *= shape[i] ? shape[i] : 1) {
        strides[i] = below(6) ? step : 0;
        if (below(2) == 0 && shape[i] > 0) {
            first += (int)((shape[i] - 1) * strides[i]);
            strides[i] = -strides[i];
        }
    }
    if (is_narrow && below(2)) owner->flags |= DLB_FLAG_SUBBYTE_PADDED;
    dlb_memory memory = {
        .struct_size = sizeof memory, .data = numbers, .shape = shape, .ndim = ndim,
        .strides = is_strided ? strides : NULL, .flags = (uint64_t)owner->flags,
        .dtype = dtype, .device = {DLB_DEVICE_CPU, 0}, .token = owner,
        .byte_offset = is_strided ? (uint64_t)first * dtype.bits * dtype.lanes / 8 : 0,
        .release = owner->is_queued ? NULL : release, .queue = owner->is_queued ? queue : NULL,
    };
    dlb_status expected = DLB_STATUS_OK;
    switch (below(12)) {
    case 0: memory.ndim = -1 - (int)below(9), expected = DLB_STATUS_REFUSED; break;
    case 1: memory.struct_size = below(64), expected = DLB_STATUS_INVALID; break;
    case 2: if (ndim) shape[ndim - 1] = -1, expected = DLB_STATUS_REFUSED; break;
    case 3: memory.dtype.lanes = 0, expected = DLB_STATUS_REFUSED; break;
    case 4: memory.device.kind = 0, expected = DLB_STATUS_INVALID; break;
    }
    dlb_tensor *tensor = NULL;
    if (python && below(4) == 0) {
        PyObject *object = NULL;
        CHECK(dlb_export_python(&memory, &object) == expected);
        if (object) add(OBJECT, object, owner);
    } else {
        CHECK(dlb_export(&memory, &tensor) == expected);
        if (tensor) add(TENSOR, tensor, owner);
    }
    CHECK(owner->released == 0);
}

static void use_tensor(item *which) {
    dlb_tensor *tensor = which->pointer, *copy = NULL;
    void *made = NULL;
    const dlb_info *info = dlb_tensor_info(tensor);
    // A legacy descriptor has no flags for these.
    int unsaid = (info->flags & (DLB_FLAG_READ_ONLY | DLB_FLAG_SUBBYTE_PADDED)) != 0;
    switch (below(10)) {
    case 0:
        add(TENSOR, dlb_retain(tensor), which->owner);
        items[count - 1].was_legacy = which->was_legacy;
        return;
    case 1: dlb_release(tensor); remove_item(which); return;
    case 2:
        CHECK(dlb_queue_release(queue, tensor) == DLB_STATUS_OK);
        waiting[waits++] = which->owner;
        if (which->owner) which->owner->uses++;
        remove_item(which);
        return;
    case 3: CHECK(dlb_copy(tensor, &copy) == DLB_STATUS_OK); add(TENSOR, copy, NULL); return;
    case 4:
        CHECK(dlb_into_versioned(tensor, (struct DLManagedTensorVersioned **)&made) == DLB_STATUS_OK);
        which->kind = VERSIONED;
        break;
    case 5:
        if (dlb_into_legacy(tensor, (struct DLManagedTensor **)&made) != DLB_STATUS_OK) {
            CHECK(unsaid && !made);
            return;
        }
        // What came by the legacy ABI goes back by it, read-only or not.
        CHECK(!unsaid || which->was_legacy);
        which->kind = LEGACY;
        break;
    case 6:
        if (!python) {
            CHECK(dlb_into_python(tensor, (PyObject **)&made) == DLB_STATUS_NOT_ATTACHED);
            return;
        }
        CHECK(dlb_into_python(tensor, (PyObject **)&made) == DLB_STATUS_OK);
        which->kind = OBJECT;
        break;
    case 7:
        if (!python || dlb_into_capsule(tensor, (int)below(2), (PyObject **)&made) != DLB_STATUS_OK) {
            CHECK(!python || (unsaid && !made));
            return;
        }
        which->kind = CAPSULE;
        break;
    case 8:
        CHECK(info->ndim <= 12 && (info->len == 0 || info->data) && info->strides);
        CHECK(dlb_into_versioned(tensor, NULL) == DLB_STATUS_INVALID);
        CHECK(dlb_into_legacy(tensor, NULL) == DLB_STATUS_INVALID);
        CHECK(dlb_copy(tensor, NULL) == DLB_STATUS_INVALID);
        return;
    case 9: {
        char name[16];
        CHECK(dlb_dtype_name(info->dtype, name, below(16)) >= strlen("int4"));
        CHECK(dlb_device_name(info->device, name, below(16)) == strlen("cpu"));
        return;
    }
    }
    which->pointer = made;
    check(which->owner);
}

static void use_managed(item *which) {
    dlb_tensor *tensor = NULL;
    int versioned = which->kind == VERSIONED;
    uint32_t *major = which->pointer;
    switch (below(versioned ? 4 : 3)) {
    case 0:
        versioned ? dlb_delete_versioned(which->pointer) : dlb_delete_legacy(which->pointer);
        remove_item(which);
        return;
    case 3:
        *major += 1;
        CHECK(dlb_from_versioned(which->pointer, &tensor) == DLB_STATUS_REFUSED && !tensor);
        *major -= 1;
        return;
    default:
        CHECK((versioned ? dlb_from_versioned(which->pointer, &tensor)
                         : dlb_from_legacy(which->pointer, &tensor)) == DLB_STATUS_OK);
        which->kind = TENSOR;
        which->pointer = tensor;
        which->was_legacy |= !versioned;
    }
}

static void use_object(item *which) {
    dlb_tensor *tensor = NULL;
    if (below(3)) {
        dlb_request request = {.struct_size = sizeof request};
        dlb_status status = dlb_from_python(which->pointer, below(2) ? &request : NULL, &tensor);
        if (status != DLB_STATUS_OK) CHECK(which->kind == CAPSULE && !which->owner);
        if (tensor) {
            add(TENSOR, tensor, which->owner);
            items[count - 1].was_legacy = which->kind == CAPSULE;
        }
        // A capsule is empty from here on.
        if (which->kind == CAPSULE && which->owner) {
            which->owner->uses--;
            which->owner = NULL;
        }
    } else {
        FN("Py_DecRef", void, PyObject *)(which->pointer);
        remove_item(which);
    }
}

static void mistake(void) {
    dlb_tensor *tensor = NULL;
    PyObject *object = NULL;
    switch (below(8)) {
    case 0: CHECK(dlb_from_versioned(NULL, &tensor) == DLB_STATUS_INVALID); break;
    case 1: CHECK(dlb_into_python(NULL, &object) == DLB_STATUS_INVALID); break;
    case 2: CHECK(dlb_from_python(NULL, NULL, &tensor) == DLB_STATUS_INVALID); break;
    case 3: CHECK(dlb_copy(NULL, &tensor) == DLB_STATUS_INVALID); break;
    case 4: CHECK(dlb_export_python(NULL, &object) == DLB_STATUS_INVALID); break;
    case 5: CHECK(dlb_use_python(NULL) == DLB_STATUS_INVALID); break;
    case 6: dlb_release(NULL), dlb_retain(NULL); break;
    case 7: CHECK(dlb_queue_take(NULL, NULL, 9) == 0 && dlb_tensor_info(NULL) == NULL); break;
    }
    CHECK(!tensor && !object);
}

static void step(void) {
    if (waits > ITEMS || below(40) == 0) drain();
    if (below(50) == 0) mistake();
    if (count < 4 || (count < ITEMS - 8 && below(4) == 0)) {
        export();
        return;
    }
    item *which = &items[below((unsigned)count)];
    if (count >= ITEMS - 8) {
        // Too many: one of them goes.
        switch (which->kind) {
        case TENSOR: dlb_release(which->pointer); break;
        case VERSIONED: dlb_delete_versioned(which->pointer); break;
        case LEGACY: dlb_delete_legacy(which->pointer); break;
        default: FN("Py_DecRef", void, PyObject *)(which->pointer);
        }
        remove_item(which);
        return;
    }
    switch (which->kind) {
    case TENSOR: use_tensor(which); break;
    case VERSIONED: case LEGACY: use_managed(which); break;
    default: use_object(which);
    }
}

int main(int argc, char **arguments) {
    CHECK(argc >= 2);
    if (argc > 2) {
        python = dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL);
        CHECK(python);
        FN("Py_InitializeEx", void, int)(0);
    }
    queue = dlb_queue_new(wake, &wakes);
    for (long limit = atol(arguments[1]); calls < limit; calls++) step();
    while (count > 0) {
        item *last = &items[count - 1];
        switch (last->kind) {
        case TENSOR: dlb_release(last->pointer); break;
        case VERSIONED: dlb_delete_versioned(last->pointer); break;
        case LEGACY: dlb_delete_legacy(last->pointer); break;
        default: FN("Py_DecRef", void, PyObject *)(last->pointer);
        }
        remove_item(last);
    }
    drain();
    take_tokens();
    for (int i = 0; i < OWNERS; i++) CHECK(owners[i].uses == 0 && owners[i].released <= 1);
    CHECK(dlb_queue_pending(queue) == 0 && wakes > 0 && tokens_seen > 0);
    dlb_queue_mute(queue);
    dlb_queue_close(queue);
    if (python) FN("Py_FinalizeEx", int, void)();
    puts("ok");
    return 0;
}
