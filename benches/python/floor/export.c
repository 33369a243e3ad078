/* C memory out to Python: an object with a tensor, its capsules, and arrays of other types.
 * Invariant: a block of elements is freed with the last of the object and its exports, on
 * whichever thread that is, and without the interpreter's lock.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "abi.h"

enum { ROWS = 2, COLUMNS = 3 };

typedef struct {
    atomic_int owners;
    float elements[ROWS * COLUMNS];
} Block;

typedef struct {
    PyObject_HEAD
    Block *block;
} Object;

typedef struct {
    Managed managed;
    int64_t shape[2], strides[2];
} Export;

typedef struct {
    Legacy legacy;
    int64_t shape[2], strides[2];
} LegacyExport;

static PyObject *max_version_name, *stream_name, *device_name, *copy_name;

static Block *new_block(void) {
    Block *block = malloc(sizeof *block);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&block->owners, 1);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        block->elements[i] = (float)i + 1.5f;
    }
    return block;
}

static void leave_block(Block *block) {
    if (atomic_fetch_sub_explicit(&block->owners, 1, memory_order_acq_rel) == 1) {
        free(block);
    }
}

static void describe(Tensor *tensor, Block *block, int64_t *shape, int64_t *strides) {
    shape[0] = ROWS;
    shape[1] = COLUMNS;
    strides[0] = COLUMNS;
    strides[1] = 1;
    *tensor = (Tensor){
        .data = block->elements,
        .device = {CPU, 0},
        .ndim = 2,
        .dtype = {FLOAT, 32, 1},
        .shape = shape,
        .strides = strides,
    };
}

static void delete_export(Managed *managed) {
    leave_block(managed->context);
    free(managed);
}

static void delete_legacy(Legacy *legacy) {
    leave_block(legacy->context);
    free(legacy);
}

/* Takes over one share of the block; gives null and an exception when there is no memory. */
static Managed *new_export(Block *block) {
    Export *export = malloc(sizeof *export);
    if (!export) {
        PyErr_NoMemory();
        return NULL;
    }
    export->managed = (Managed){{MAJOR, MINOR}, block, delete_export, 0, {0}};
    describe(&export->managed.tensor, block, export->shape, export->strides);
    return &export->managed;
}

static void drop_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        delete_export(PyCapsule_GetPointer(capsule, VERSIONED));
    }
}

static void drop_legacy_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, LEGACY)) {
        delete_legacy(PyCapsule_GetPointer(capsule, LEGACY));
    }
}

static PyObject *versioned_capsule(Block *block) {
    Managed *managed = new_export(block);
    if (!managed) {
        return NULL;
    }
    atomic_fetch_add_explicit(&block->owners, 1, memory_order_relaxed);
    PyObject *capsule = PyCapsule_New(managed, VERSIONED, drop_capsule);
    if (!capsule) {
        delete_export(managed);
    }
    return capsule;
}

static PyObject *legacy_capsule(Block *block) {
    LegacyExport *export = malloc(sizeof *export);
    if (!export) {
        return PyErr_NoMemory();
    }
    export->legacy = (Legacy){{0}, block, delete_legacy};
    describe(&export->legacy.tensor, block, export->shape, export->strides);
    atomic_fetch_add_explicit(&block->owners, 1, memory_order_relaxed);
    PyObject *capsule = PyCapsule_New(&export->legacy, LEGACY, drop_legacy_capsule);
    if (!capsule) {
        delete_legacy(&export->legacy);
    }
    return capsule;
}

/* Whether a keyword has the name; the names that callers write are interned. */
static int is(PyObject *keyword, PyObject *name) {
    return keyword == name || PyUnicode_Compare(keyword, name) == 0;
}

static PyObject *refuse(const char *message) {
    PyErr_SetString(PyExc_BufferError, message);
    return NULL;
}

static PyObject *object_dlpack(PyObject *self, PyObject *const *arguments, Py_ssize_t positional,
                               PyObject *names) {
    if (positional) {
        PyErr_SetString(PyExc_TypeError, "__dlpack__ takes keywords only");
        return NULL;
    }
    long major = 0;
    Py_ssize_t count = names ? PyTuple_GET_SIZE(names) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i), *value = arguments[i];
        if (value == Py_None) {
            continue;
        }
        if (is(name, max_version_name)) {
            if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2) {
                PyErr_SetString(PyExc_TypeError, "max_version is a pair of numbers");
                return NULL;
            }
            major = PyLong_AsLong(PyTuple_GET_ITEM(value, 0));
            if (major == -1 && PyErr_Occurred()) {
                return NULL;
            }
        } else if (is(name, copy_name)) {
            if (value != Py_False) {
                return refuse("no copies are made here");
            }
        } else if (is(name, stream_name)) {
            if (!PyLong_Check(value) || PyLong_AsLong(value) != -1) {
                return refuse("host memory has no streams");
            }
        } else if (is(name, device_name)) {
            int kind, id;
            if (!PyArg_ParseTuple(value, "ii", &kind, &id)) {
                return NULL;
            }
            if (kind != CPU || id != 0) {
                return refuse("the memory lies on cpu");
            }
        } else {
            return PyErr_Format(PyExc_TypeError, "unknown keyword %R", name);
        }
    }
    Block *block = ((Object *)self)->block;
    return major >= MAJOR ? versioned_capsule(block) : legacy_capsule(block);
}

static PyObject *object_device(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue("(ii)", CPU, 0);
}

static void object_dealloc(PyObject *self) {
    leave_block(((Object *)self)->block);
    PyObject_Free(self);
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))object_dlpack, METH_FASTCALL | METH_KEYWORDS,
     "A capsule over the tensor."},
    {"__dlpack_device__", object_device, METH_NOARGS, "Where the tensor lies."},
    {0},
};

static PyTypeObject type = {
    .ob_base = PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "bench_floor.Tensor",
    .tp_basicsize = sizeof(Object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = object_dealloc,
    .tp_methods = methods,
};

int export_ready(PyObject *module) {
    max_version_name = PyUnicode_InternFromString("max_version");
    stream_name = PyUnicode_InternFromString("stream");
    device_name = PyUnicode_InternFromString("dl_device");
    copy_name = PyUnicode_InternFromString("copy");
    if (!max_version_name || !stream_name || !device_name || !copy_name) {
        return -1;
    }
    return PyModule_AddType(module, &type);
}

PyObject *make(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    Block *block = new_block();
    if (!block) {
        return NULL;
    }
    Object *object = PyObject_New(Object, &type);
    if (!object) {
        leave_block(block);
        return NULL;
    }
    object->block = block;
    return (PyObject *)object;
}

/* What never reaches Python: made, looked at and released. */
PyObject *share(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    Block *block = new_block();
    Managed *managed = block ? new_export(block) : NULL;
    if (!managed) {
        if (block) {
            leave_block(block);
        }
        return NULL;
    }
    PyObject *value = read_tensor(&managed->tensor);
    managed->deleter(managed);
    return value;
}

PyObject *make_exchange(PyObject *module, PyObject *like) {
    (void)module;
    const Exchange *table = exchange_of(like);
    Block *block = table ? new_block() : NULL;
    if (!block) {
        return NULL;
    }
    Managed *managed = new_export(block);
    if (!managed) {
        leave_block(block);
        return NULL;
    }
    void *object;
    if (table->to_object(managed, &object)) {
        delete_export(managed);
        return NULL;
    }
    return object;
}
