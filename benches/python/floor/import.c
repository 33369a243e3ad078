/* DLPack into C: through a capsule, through the C exchange API, owned and borrowed.
 * Invariant: what a function has taken, it releases before it returns.
 */
#include <string.h>

#include "abi.h"

static PyObject *dlpack_name, *keywords, *newest;

int import_ready(void) {
    dlpack_name = PyUnicode_InternFromString("__dlpack__");
    keywords = Py_BuildValue("(N)", PyUnicode_InternFromString("max_version"));
    newest = Py_BuildValue("(ii)", MAJOR, MINOR);
    return dlpack_name && keywords && newest ? 0 : -1;
}

PyObject *first_element(const void *data) {
    float value;
    memcpy(&value, data, sizeof value);
    return PyFloat_FromDouble(value);
}

int readable(const Tensor *tensor) {
    if (tensor->device.kind == CPU && tensor->dtype.code == FLOAT && tensor->dtype.bits == 32 &&
        tensor->dtype.lanes == 1 && tensor->ndim == 2 && tensor->shape[0] > 0 &&
        tensor->shape[1] > 0) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "expected float32[m, n] on cpu");
    return 0;
}

PyObject *read_tensor(const Tensor *tensor) {
    if (!readable(tensor)) {
        return NULL;
    }
    return first_element((const char *)tensor->data + tensor->byte_offset);
}

/* A tensor, and what owns it: one of the two is not null. */
typedef struct {
    const Tensor *tensor;
    Managed *managed;
    Legacy *legacy;
} Owned;

/* A null deleter is legal: nothing is to be freed. */
static void release(Owned owned) {
    if (owned.managed && owned.managed->deleter) {
        owned.managed->deleter(owned.managed);
    } else if (owned.legacy && owned.legacy->deleter) {
        owned.legacy->deleter(owned.legacy);
    }
}

static int owns(Managed *managed, Owned *owned) {
    if (managed->version.major != MAJOR) {
        PyErr_SetString(PyExc_BufferError, "unknown major version");
        return 0;
    }
    *owned = (Owned){&managed->tensor, managed, NULL};
    return 1;
}

/* A producer that does not know versions: NumPy before 2.1, TensorFlow, MLX, JAX. */
static int consume_legacy(PyObject *capsule, Owned *owned) {
    PyErr_Clear();
    Legacy *legacy = PyCapsule_GetPointer(capsule, LEGACY);
    if (!legacy || PyCapsule_SetName(capsule, LEGACY_USED)) {
        return 0;
    }
    *owned = (Owned){&legacy->tensor, NULL, legacy};
    return 1;
}

static int take_capsule(PyObject *array, Owned *owned) {
    PyObject *arguments[2] = {array, newest};
    PyObject *capsule = PyObject_VectorcallMethod(dlpack_name, arguments, 1, keywords);
    if (!capsule) {
        return 0;
    }
    Managed *managed = PyCapsule_GetPointer(capsule, VERSIONED);
    int is_owned = managed ? owns(managed, owned) && !PyCapsule_SetName(capsule, VERSIONED_USED)
                           : consume_legacy(capsule, owned);
    Py_DECREF(capsule);
    return is_owned;
}

PyObject *read_capsule(PyObject *module, PyObject *array) {
    (void)module;
    Owned owned;
    if (!take_capsule(array, &owned)) {
        return NULL;
    }
    PyObject *value = read_tensor(owned.tensor);
    release(owned);
    return value;
}

/* The last type that was asked, kept alive, and its table. */
static PyTypeObject *known_type;
static const Exchange *known_table;

static const Exchange *look_up(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (!capsule) {
        return NULL;
    }
    const Exchange *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    while (table && table->version.major != MAJOR) {
        table = table->previous;
    }
    if (table) {
        Py_XDECREF(known_type);
        Py_INCREF(type);
        known_type = type;
        known_table = table;
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_BufferError, "unknown major version");
    }
    return table;
}

const Exchange *exchange_of(PyObject *object) {
    return Py_TYPE(object) == known_type ? known_table : look_up(Py_TYPE(object));
}

static int take_exchange(PyObject *array, Owned *owned) {
    const Exchange *table = exchange_of(array);
    Managed *managed;
    if (!table || table->from_object(array, &managed)) {
        return 0;
    }
    if (!owns(managed, owned)) {
        release((Owned){NULL, managed, NULL});
        return 0;
    }
    return 1;
}

PyObject *read_exchange(PyObject *module, PyObject *array) {
    (void)module;
    Owned owned;
    if (!take_exchange(array, &owned)) {
        return NULL;
    }
    PyObject *value = read_tensor(owned.tensor);
    release(owned);
    return value;
}

static int is_vector(const Tensor *tensor) {
    return tensor->device.kind == CPU && tensor->dtype.code == FLOAT && tensor->dtype.bits == 64 &&
           tensor->dtype.lanes == 1 && tensor->ndim == 1;
}

static double element(const Tensor *tensor, int64_t index) {
    int64_t stride = tensor->strides ? tensor->strides[0] : 1;
    double value;
    memcpy(&value, (char *)tensor->data + tensor->byte_offset + index * stride * 8, 8);
    return value;
}

/* The sum of the products of one or two vectors. */
static PyObject *dot(const Tensor *x, const Tensor *y) {
    if (!is_vector(x) || !is_vector(y) || x->shape[0] != y->shape[0]) {
        PyErr_SetString(PyExc_TypeError, "expected float64[n] on cpu");
        return NULL;
    }
    double sum = 0;
    for (int64_t i = 0; i < x->shape[0]; i++) {
        sum += element(x, i) * (x == y ? 1 : element(y, i));
    }
    return PyFloat_FromDouble(sum);
}

static inline PyObject *call(PyObject *const *arrays, Py_ssize_t count,
                             int (*take)(PyObject *, Owned *)) {
    Owned owned[2];
    Py_ssize_t taken = 0;
    while (taken < count && taken < 2 && take(arrays[taken], &owned[taken])) {
        taken++;
    }
    PyObject *value = NULL;
    if (taken && taken == count) {
        value = dot(owned[0].tensor, owned[taken - 1].tensor);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "expected one or two arrays");
    }
    while (taken) {
        release(owned[--taken]);
    }
    return value;
}

PyObject *call_capsule(PyObject *module, PyObject *const *arrays, Py_ssize_t count) {
    (void)module;
    return call(arrays, count, take_capsule);
}

PyObject *call_exchange(PyObject *module, PyObject *const *arrays, Py_ssize_t count) {
    (void)module;
    return call(arrays, count, take_exchange);
}
