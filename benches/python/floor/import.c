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

/* A null deleter is legal: nothing is to be freed. */
static void release(Managed *managed) {
    if (managed->deleter) {
        managed->deleter(managed);
    }
}

/* A producer that does not know versions: NumPy before 2.1, TensorFlow, MLX. */
static PyObject *read_legacy(PyObject *capsule) {
    PyErr_Clear();
    Legacy *legacy = PyCapsule_GetPointer(capsule, LEGACY);
    if (!legacy || PyCapsule_SetName(capsule, LEGACY_USED)) {
        return NULL;
    }
    PyObject *value = read_tensor(&legacy->tensor);
    if (legacy->deleter) {
        legacy->deleter(legacy);
    }
    return value;
}

PyObject *read_capsule(PyObject *module, PyObject *array) {
    (void)module;
    PyObject *arguments[2] = {array, newest};
    PyObject *capsule = PyObject_VectorcallMethod(dlpack_name, arguments, 1, keywords);
    if (!capsule) {
        return NULL;
    }
    PyObject *value = NULL;
    Managed *managed = PyCapsule_GetPointer(capsule, VERSIONED);
    if (!managed) {
        value = read_legacy(capsule);
    } else if (managed->version.major != MAJOR) {
        PyErr_SetString(PyExc_BufferError, "unknown major version");
    } else if (PyCapsule_SetName(capsule, VERSIONED_USED) == 0) {
        value = read_tensor(&managed->tensor);
        release(managed);
    }
    Py_DECREF(capsule);
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

PyObject *read_exchange(PyObject *module, PyObject *array) {
    (void)module;
    const Exchange *table = exchange_of(array);
    Managed *managed;
    if (!table || table->from_object(array, &managed)) {
        return NULL;
    }
    PyObject *value = NULL;
    if (managed->version.major != MAJOR) {
        PyErr_SetString(PyExc_BufferError, "unknown major version");
    } else {
        value = read_tensor(&managed->tensor);
    }
    release(managed);
    return value;
}

PyObject *read_borrowed(PyObject *module, PyObject *array) {
    (void)module;
    const Exchange *table = exchange_of(array);
    if (table && !table->borrow) {
        return read_exchange(module, array);
    }
    Tensor tensor;
    if (!table || table->borrow(array, &tensor)) {
        return NULL;
    }
    return read_tensor(&tensor);
}
