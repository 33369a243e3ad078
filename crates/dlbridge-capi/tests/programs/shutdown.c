// Threads that release and import while Python is shut down. The arguments are libpython, and what the
// threads do:
//
// - "library" releases NumPy arrays, "consumer" calls the deleters of exports of them;
// - "managed" calls the deleters of NumPy's own managed tensors, which take the GIL, "owner" those of exports
//   of tensors over them, and "holder" releases these tensors;
// - "importer" imports objects whose `__dlpack__` runs Python code.
//
// It prints "ok".

#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct _object PyObject;

// The start of the struct of DLPack 1.0.
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
};

static void *python;

// A function of Python by its name, result and arguments.
#define FN(name, result, ...) (*(result(**)(__VA_ARGS__))&(void *){dlsym(python, name)})

enum { TENSORS = 400, THREADS = 3 };
static dlb_tensor *tensors[THREADS][TENSORS];
static struct DLManagedTensorVersioned *exports[THREADS][TENSORS];
static atomic_int started;
static const char *task;
static PyObject *producer;

static int is(const char *name) { return !strcmp(task, name); }

static void *release_all(void *argument) {
    long thread = (long)argument;
    atomic_fetch_add(&started, 1);
    for (int i = 0; i < TENSORS; i++) {
        struct DLManagedTensorVersioned *export = exports[thread][i];
        if (is("owner"))
            export->deleter(export);
        else if (export)
            dlb_delete_versioned(export);
        else
            dlb_release(tensors[thread][i]);
    }
    return NULL;
}

static void *import_all(void *argument) {
    atomic_fetch_add(&started, 1);
    FN("PyGILState_Ensure", int, void)();
    for (;;) {
        dlb_tensor *tensor = NULL;
        CHECK(dlb_from_python(producer, NULL, &tensor) == DLB_STATUS_OK);
        dlb_release(tensor);
    }
    return argument;
}

static PyObject *evaluate(const char *code, PyObject *globals) {
    PyObject *object = FN("PyRun_String", PyObject *, const char *, int, PyObject *, PyObject *)(code, 258, globals, globals);
    CHECK(object);
    return object;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    CHECK(python);
    task = arguments[2];
    FN("Py_InitializeEx", void, int)(0);
    // What is freed last takes the time in which the threads are found waiting.
    CHECK(FN("PyRun_SimpleString", int, const char *)(
        "import numpy as np, time\n"
        "class Slow:\n"
        "    def __del__(self, sleep=time.sleep): sleep(0.03)\n"
        "class Producer:\n"
        "    def __dlpack__(self, **k):\n"
        "        for i in range(10000): pass\n"
        "        return np.ones(2).__dlpack__(**k)\n"
        "slow = [Slow() for _ in range(3)]\n") == 0);
    PyObject *module = FN("PyImport_AddModule", PyObject *, const char *)("__main__");
    PyObject *globals = FN("PyModule_GetDict", PyObject *, PyObject *)(module);
    producer = evaluate("Producer()", globals);
    for (int thread = 0; thread < THREADS; thread++) {
        for (int i = 0; i < TENSORS && !is("importer"); i++) {
            dlb_tensor **tensor = &tensors[thread][i];
            struct DLManagedTensorVersioned **export = &exports[thread][i];
            if (is("library") || is("consumer")) {
                PyObject *object = evaluate(i % 2 ? "np.ones(4)" : "np.ones(4)[::2]", globals);
                CHECK(dlb_from_python(object, NULL, tensor) == DLB_STATUS_OK);
                FN("Py_DecRef", void, PyObject *)(object);
            } else {
                PyObject *capsule = evaluate("np.ones(4).__dlpack__(max_version=(1, 0))", globals);
                *export = FN("PyCapsule_GetPointer", void *, PyObject *, const char *)(capsule, "dltensor_versioned");
                CHECK(*export);
                CHECK(FN("PyCapsule_SetName", int, PyObject *, const char *)(capsule, "used_dltensor_versioned") == 0);
                FN("Py_DecRef", void, PyObject *)(capsule);
                if (is("managed")) continue;
                CHECK(dlb_from_versioned(*export, tensor) == DLB_STATUS_OK);
                *export = NULL;
            }
            if (is("library") || is("holder")) continue;
            // A second reference makes the export one of this library, which shares the handle.
            dlb_retain(*tensor);
            CHECK(dlb_into_versioned(*tensor, export) == DLB_STATUS_OK);
            dlb_release(*tensor);
        }
    }
    pthread_t threads[THREADS];
    for (long thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, is("importer") ? import_all : release_all, (void *)thread) == 0);
    while (atomic_load(&started) < THREADS) continue;
    if (is("importer")) {
        // Lets the threads run Python code.
        CHECK(FN("PyRun_SimpleString", int, const char *)("time.sleep(0.05)") == 0);
    }
    FN("Py_FinalizeEx", int, void)();
    // Python has waited for the releases under way, and the rest leaked. Other threads stop inside the library.
    for (int thread = 0; thread < THREADS && is("library"); thread++)
        CHECK(pthread_join(threads[thread], NULL) == 0);
    puts("ok");
    fflush(stdout);
    return 0;
}
