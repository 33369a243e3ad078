/* The floor: the least that a correct extension written by hand does for each path.
 * The paths stand in import.c, export.c and buffer.c; this names them for Python.
 */
#include "abi.h"

/* What a call costs that does nothing: subtracted from every other. */
static PyObject *nothing(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    Py_RETURN_NONE;
}

static PyObject *ignore(PyObject *module, PyObject *array) {
    (void)module, (void)array;
    return PyFloat_FromDouble(1.5);
}

#define FASTCALL(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"nothing", nothing, METH_NOARGS, "Do nothing."},
    {"ignore", ignore, METH_O, "Give a number whatever the argument is."},
    {"read", read_capsule, METH_O, "Own the tensor of __dlpack__."},
    {"read_exchange", read_exchange, METH_O, "Own the tensor of the C exchange API."},
    {"call_one", FASTCALL(call_capsule), "Sum the vectors of __dlpack__."},
    {"call_two", FASTCALL(call_capsule), "The same."},
    {"call_one_exchange", FASTCALL(call_exchange), "Sum vectors of the C exchange API."},
    {"call_two_exchange", FASTCALL(call_exchange), "The same."},
    {"read_line", read_line, METH_O, "Own a buffer of one axis."},
    {"share", share, METH_NOARGS, "A new tensor, read and dropped."},
    {"make", make, METH_NOARGS, "An object with a new tensor."},
    {"make_exchange", make_exchange, METH_O, "A new array of the argument's type."},
    {0},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "bench_floor",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit_bench_floor(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && (import_ready() || export_ready(module))) {
        Py_CLEAR(module);
    }
#ifdef Py_GIL_DISABLED
    if (module) {
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
    }
#endif
    return module;
}
