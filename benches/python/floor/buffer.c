/* The floor of an object that has the buffer protocol alone, such as array.array: an owning tensor of one
 * axis keeps the buffer, and its release needs the interpreter's lock.
 */
#include <stdlib.h>

#include "abi.h"

typedef struct {
    int64_t shape[1], strides[1];
    Py_buffer buffer;
} Owner;

/* Reads the first element of a buffer of float32, whose layout the owner takes over. */
static PyObject *read_owned(Owner *owner, PyObject *list) {
    Py_buffer *buffer = &owner->buffer;
    if (PyObject_GetBuffer(list, buffer, PyBUF_STRIDES | PyBUF_FORMAT)) {
        return NULL;
    }
    PyObject *value = NULL;
    const Py_ssize_t size = sizeof(float);
    const char *format = buffer->format;
    if (format && format[0] == 'f' && format[1] == 0 && buffer->itemsize == size &&
        buffer->ndim == 1 && buffer->shape[0] > 0 && buffer->strides[0] % size == 0) {
        owner->shape[0] = buffer->shape[0];
        owner->strides[0] = buffer->strides[0] / size;
        value = first_element(buffer->buf);
    } else {
        PyErr_SetString(PyExc_TypeError, "expected a buffer of float32[n]");
    }
    PyBuffer_Release(buffer);
    return value;
}

PyObject *read_line(PyObject *module, PyObject *list) {
    (void)module;
    Owner *owner = malloc(sizeof *owner);
    if (!owner) {
        return PyErr_NoMemory();
    }
    PyObject *value = read_owned(owner, list);
    free(owner);
    return value;
}
