/* The operator `scale` as NumPy's universal functions: one of a vector, and one of single elements. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/ndarrayobject.h>
#include <numpy/ufuncobject.h>

static void scale_each(char **arguments, const npy_intp *dimensions, const npy_intp *steps, void *data) {
    (void)data;
    char *x = arguments[0], *factor = arguments[1], *out = arguments[2];
    for (npy_intp i = 0; i < dimensions[0]; i++) {
        *(float *)out = *(float *)x * (float)*(double *)factor;
        x += steps[0], factor += steps[1], out += steps[2];
    }
}

static void scale(char **arguments, const npy_intp *dimensions, const npy_intp *steps, void *data) {
    char *x = arguments[0], *factor = arguments[1], *out = arguments[2];
    for (npy_intp i = 0; i < dimensions[0]; i++) {
        char *each[] = {x, factor, out};
        npy_intp core[] = {steps[3], 0, steps[4]};
        scale_each(each, dimensions + 1, core, data);
        x += steps[0], factor += steps[1], out += steps[2];
    }
}

static PyUFuncGenericFunction loops[] = {scale}, loops_of_each[] = {scale_each};
static const char types[] = {NPY_FLOAT, NPY_DOUBLE, NPY_FLOAT};
static void *data[] = {NULL};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "bench_ufunc", .m_size = -1};

PyMODINIT_FUNC PyInit_bench_ufunc(void) {
    import_array();
    import_umath();
    PyObject *module = PyModule_Create(&definition);
    PyObject *whole = PyUFunc_FromFuncAndDataAndSignature(loops, data, types, 1, 2, 1, PyUFunc_None, "scale", NULL, 0,
                                                          "(n),()->(n)");
    PyObject *each = PyUFunc_FromFuncAndData(loops_of_each, data, types, 1, 2, 1, PyUFunc_None, "scale_each", NULL, 0);
    if (!module || PyModule_AddObject(module, "scale", whole) || PyModule_AddObject(module, "scale_each", each)) {
        return NULL;
    }
    return module;
}
