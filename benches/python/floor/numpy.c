/* Other ways to NumPy's memory than DLPack: which one is the quickest?
 * Each function makes what an owning tensor needs (shape and strides in elements, and what keeps
 * the memory alive), reads one element and releases everything.
 * All of them need the interpreter's lock for the release, which a DLPack deleter does not.
 */
#include <stdlib.h>

#include "abi.h"

/* The class numpy.ndarray; null when NumPy is not there. */
static PyObject *ndarray;
static PyObject *struct_name, *interface_name;
static PyObject *data_key, *shape_key, *strides_key, *typestr_key;

/* The struct behind `__array_struct__`, as the array interface (version 3) lays it out. */
typedef struct {
    int two, ndim;
    char kind;
    int itemsize, flags;
    Py_ssize_t *shape, *strides;
    void *data;
    PyObject *description;
} ArrayStruct;

enum { ALIGNED = 0x100, NATIVE = 0x200 };

/* The head of a NumPy array, fixed by NumPy's C ABI since 1.7, and the head of its dtype. */
typedef struct {
    PyObject_HEAD
    char *data;
    int ndim;
    Py_ssize_t *shape, *strides;
    PyObject *base;
    struct {
        PyObject_HEAD
        PyTypeObject *scalar;
        char kind, type, byteorder, flags;
        int number;
    } *dtype;
    int flags;
} ArrayObject;

enum { NUMPY_FLOAT32 = 11 };

typedef struct {
    int64_t shape[2], strides[2];
    PyObject *keeper;
} Owner;

typedef struct {
    int64_t shape[2], strides[2];
    Py_buffer buffer;
} BufferOwner;

int numpy_ready(void) {
    struct_name = PyUnicode_InternFromString("__array_struct__");
    interface_name = PyUnicode_InternFromString("__array_interface__");
    data_key = PyUnicode_InternFromString("data");
    shape_key = PyUnicode_InternFromString("shape");
    strides_key = PyUnicode_InternFromString("strides");
    typestr_key = PyUnicode_InternFromString("typestr");
    PyObject *numpy = PyImport_ImportModule("numpy");
    ndarray = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    Py_XDECREF(numpy);
    PyErr_Clear();
    return struct_name && interface_name && data_key && shape_key && strides_key && typestr_key
               ? 0
               : -1;
}

/* A compiler must not see that an owner comes and goes, or it leaves both out. */
#define KEPT __attribute__((noinline))

KEPT static Owner *new_owner(PyObject *keeper) {
    Owner *owner = malloc(sizeof *owner);
    if (owner) {
        owner->keeper = keeper;
    } else {
        PyErr_NoMemory();
    }
    return owner;
}

KEPT static void drop_owner(Owner *owner) {
    Py_DECREF(owner->keeper);
    free(owner);
}

static PyObject *refuse(void) {
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "expected an array of float32[m, n]");
    }
    return NULL;
}

/* Takes over shape and strides in bytes; 0 if the strides are no whole elements or there is
 * nothing to read. */
static int take_axes(int axes, int64_t *shape, int64_t *strides, const Py_ssize_t *lengths,
                     const Py_ssize_t *steps) {
    for (int axis = 0; axis < axes; axis++) {
        if (lengths[axis] <= 0 || steps[axis] % (Py_ssize_t)sizeof(float)) {
            return 0;
        }
        shape[axis] = lengths[axis];
        strides[axis] = steps[axis] / (Py_ssize_t)sizeof(float);
    }
    return 1;
}

static int take_layout(int64_t shape[2], int64_t strides[2], const Py_ssize_t *lengths,
                       const Py_ssize_t *steps) {
    return take_axes(2, shape, strides, lengths, steps);
}

static PyObject *read_owner_buffer(BufferOwner *owner, PyObject *array, int axes) {
    Py_buffer *buffer = &owner->buffer;
    if (PyObject_GetBuffer(array, buffer, PyBUF_STRIDES | PyBUF_FORMAT)) {
        return NULL;
    }
    PyObject *value = NULL;
    const char *format = buffer->format;
    if (format && format[0] == 'f' && format[1] == 0 && buffer->itemsize == sizeof(float) &&
        buffer->ndim == axes &&
        take_axes(axes, owner->shape, owner->strides, buffer->shape, buffer->strides)) {
        value = first_element(buffer->buf);
    } else {
        refuse();
    }
    PyBuffer_Release(buffer);
    return value;
}

static PyObject *read_new_owner(PyObject *array, int axes) {
    BufferOwner *owner = malloc(sizeof *owner);
    if (!owner) {
        return PyErr_NoMemory();
    }
    PyObject *value = read_owner_buffer(owner, array, axes);
    free(owner);
    return value;
}

PyObject *read_buffer(PyObject *module, PyObject *array) {
    (void)module;
    return read_new_owner(array, 2);
}

PyObject *read_line(PyObject *module, PyObject *list) {
    (void)module;
    return read_new_owner(list, 1);
}

PyObject *read_buffer_for_call(PyObject *module, PyObject *array) {
    (void)module;
    BufferOwner owner;
    return read_owner_buffer(&owner, array, 2);
}

/* Makes an owner, reads and releases it; takes over the keeper. */
static PyObject *read_owner(PyObject *keeper, const Py_ssize_t *shape, const Py_ssize_t *strides,
                            const void *data) {
    Owner *owner = new_owner(keeper);
    if (!owner) {
        Py_DECREF(keeper);
        return NULL;
    }
    PyObject *value = take_layout(owner->shape, owner->strides, shape, strides)
                          ? first_element(data)
                          : refuse();
    drop_owner(owner);
    return value;
}

PyObject *read_array_struct(PyObject *module, PyObject *array) {
    (void)module;
    PyObject *capsule = PyObject_GetAttr(array, struct_name);
    if (!capsule) {
        return NULL;
    }
    const ArrayStruct *found = PyCapsule_GetPointer(capsule, NULL);
    int wanted = ALIGNED | NATIVE;
    if (!found || found->two != 2 || found->ndim != 2 || found->kind != 'f' ||
        found->itemsize != sizeof(float) || (found->flags & wanted) != wanted) {
        Py_DECREF(capsule);
        return refuse();
    }
    return read_owner(capsule, found->shape, found->strides, found->data);
}

/* Two numbers of a tuple; 0 if there are not two. */
static int pair(PyObject *tuple, Py_ssize_t *numbers) {
    if (!tuple || !PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 2) {
        return 0;
    }
    numbers[0] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, 0));
    numbers[1] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, 1));
    return !PyErr_Occurred();
}

PyObject *read_array_interface(PyObject *module, PyObject *array) {
    (void)module;
    PyObject *found = PyObject_GetAttr(array, interface_name);
    if (!found) {
        return NULL;
    }
    Py_ssize_t shape[2], strides[2];
    PyObject *type = NULL, *given = NULL, *data = NULL;
    if (PyDict_Check(found)) {
        type = PyDict_GetItemWithError(found, typestr_key);
        given = PyDict_GetItemWithError(found, strides_key);
        data = PyDict_GetItemWithError(found, data_key);
    }
    int fits = type && PyUnicode_Check(type) && PyUnicode_CompareWithASCIIString(type, "<f4") == 0 &&
               pair(PyDict_GetItemWithError(found, shape_key), shape) && data &&
               PyTuple_Check(data) && PyTuple_GET_SIZE(data) == 2;
    if (fits && (!given || given == Py_None)) {
        strides[0] = shape[1] * (Py_ssize_t)sizeof(float);
        strides[1] = sizeof(float);
    } else {
        fits = fits && pair(given, strides);
    }
    void *address = fits ? PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0)) : NULL;
    Py_DECREF(found);
    if (!address) {
        return refuse();
    }
    Py_INCREF(array);
    return read_owner(array, shape, strides, address);
}

/* Whether an object is an array that can be looked into; an exception if not. */
static const ArrayObject *array_object(PyObject *array) {
    if (!ndarray || !PyObject_TypeCheck(array, (PyTypeObject *)ndarray)) {
        refuse();
        return NULL;
    }
    const ArrayObject *found = (const ArrayObject *)array;
    char order = found->dtype->byteorder;
    if (found->ndim != 2 || found->dtype->number != NUMPY_FLOAT32 || order != '=' ||
        !(found->flags & ALIGNED)) {
        refuse();
        return NULL;
    }
    return found;
}

PyObject *read_array_object(PyObject *module, PyObject *array) {
    (void)module;
    const ArrayObject *found = array_object(array);
    if (!found) {
        return NULL;
    }
    Py_INCREF(array);
    return read_owner(array, found->shape, found->strides, found->data);
}

PyObject *read_array_object_for_call(PyObject *module, PyObject *array) {
    (void)module;
    const ArrayObject *found = array_object(array);
    int64_t shape[2], strides[2];
    if (!found || !take_layout(shape, strides, found->shape, found->strides)) {
        return refuse();
    }
    return first_element(found->data);
}
