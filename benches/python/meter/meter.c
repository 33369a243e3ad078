/* Calls a function many times: how long a call takes, or how many instructions.
 * Which functions, and what of, does not belong here.
 * Invariant: between the two marks nothing runs but the calls and this loop.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <time.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HAS_CALLGRIND 1
#endif
#endif
#ifndef HAS_CALLGRIND
#define HAS_CALLGRIND 0
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(label) ((void)(label))
#endif

enum { MOST_ARGUMENTS = 5 };

/* `then(function(*arguments))`, or without `then` if that is null. */
typedef struct {
    PyObject *function, *arguments[MOST_ARGUMENTS + 1], *then;
    size_t count;
    Py_ssize_t rounds;
} Work;

static int parse(PyObject *given, Work *work, const char **label) {
    PyObject *tuple, *then;
    *label = NULL;
    if (!PyArg_ParseTuple(given, "OO!On|s", &work->function, &PyTuple_Type, &tuple, &then,
                          &work->rounds, label)) {
        return 0;
    }
    work->count = (size_t)PyTuple_GET_SIZE(tuple);
    if (work->count > MOST_ARGUMENTS) {
        PyErr_SetString(PyExc_ValueError, "too many arguments");
        return 0;
    }
    for (size_t i = 0; i < work->count; i++) {
        /* The first place is left to the callee, as vectorcall allows. */
        work->arguments[i + 1] = PyTuple_GET_ITEM(tuple, i);
    }
    work->then = then == Py_None ? NULL : then;
    return 1;
}

static int repeat(Work *work) {
    size_t flags = work->count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    for (Py_ssize_t i = 0; i < work->rounds; i++) {
        PyObject *result = PyObject_Vectorcall(work->function, work->arguments + 1, flags, NULL);
        if (result && work->then) {
            PyObject *made = result;
            result = PyObject_CallOneArg(work->then, made);
            Py_DECREF(made);
        }
        if (!result) {
            return 0;
        }
        Py_DECREF(result);
    }
    return 1;
}

/* Fills the lists that the allocator keeps for a thread (glibc: 7 blocks for each size up to 1,032 bytes). Without it, a
 * block that was cut a size too large goes to the list of the larger size, and each call cuts another one, 200
 * instructions slower: the length of the checkout's path could decide that. */
static void fill_lists(void) {
    enum { STEP = 16, SIZES = 64, BLOCKS = 7 };
    void *volatile blocks[SIZES * BLOCKS];
    for (size_t i = 0; i < SIZES * BLOCKS; i++) {
        blocks[i] = malloc((i / BLOCKS + 1) * STEP);
    }
    for (size_t i = 0; i < SIZES * BLOCKS; i++) {
        free(blocks[i]);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static PyObject *measure_time(PyObject *module, PyObject *given) {
    (void)module;
    Work work;
    const char *label;
    if (!parse(given, &work, &label)) {
        return NULL;
    }
    fill_lists();
    double start = now();
    if (!repeat(&work)) {
        return NULL;
    }
    return PyFloat_FromDouble((now() - start) / (double)work.rounds);
}

static PyObject *count_instructions(PyObject *module, PyObject *given) {
    (void)module;
    Work work;
    const char *label;
    if (!parse(given, &work, &label)) {
        return NULL;
    }
    if (!label) {
        PyErr_SetString(PyExc_TypeError, "a count needs a label");
        return NULL;
    }
    fill_lists();
    CALLGRIND_ZERO_STATS;
    int done = repeat(&work);
    CALLGRIND_DUMP_STATS_AT(label);
    if (!done) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *start(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    if (!HAS_CALLGRIND) {
        PyErr_SetString(PyExc_RuntimeError, "valgrind's header callgrind.h is not installed");
        return NULL;
    }
    CALLGRIND_START_INSTRUMENTATION;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"time", measure_time, METH_VARARGS, "Nanoseconds per call."},
    {"count", count_instructions, METH_VARARGS, "Dump callgrind's counts under a label."},
    {"start", start, METH_NOARGS, "Make callgrind count from here on."},
    {0},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "bench_meter",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit_bench_meter(void) { return PyModule_Create(&definition); }
