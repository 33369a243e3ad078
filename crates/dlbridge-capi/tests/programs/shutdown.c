// Threads that wait for the GIL while Python is shut down, which CPython before 3.14 ends. The arguments
// are libpython, and what the threads do: "library" releases NumPy arrays, "consumer" calls the deleters
// of exports of them, "importer" imports objects whose `__dlpack__` runs Python code. It prints "ok".

#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct _object PyObject;

static void *python;

// A function of Python by its name, result and arguments.
#define FN(name, result, ...) (*(result(**)(__VA_ARGS__))&(void *){dlsym(python, name)})

enum { TENSORS = 400, THREADS = 3 };
static dlb_tensor *tensors[THREADS][TENSORS];
static struct DLManagedTensorVersioned *exports[THREADS][TENSORS];
static atomic_int started;
static int by_library, by_consumer;
static PyObject *producer;

static void *release_all(void *argument) {
    long thread = (long)argument;
    atomic_fetch_add(&started, 1);
    for (int i = 0; i < TENSORS; i++) {
        if (by_consumer)
            dlb_delete_versioned(exports[thread][i]);
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
    by_library = !strcmp(arguments[2], "library");
    by_consumer = !strcmp(arguments[2], "consumer");
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
        for (int i = 0; i < TENSORS && (by_library || by_consumer); i++) {
            PyObject *object = evaluate(i % 2 ? "np.ones(4)" : "np.ones(4)[::2]", globals);
            dlb_tensor **tensor = &tensors[thread][i];
            CHECK(dlb_from_python(object, NULL, tensor) == DLB_STATUS_OK);
            FN("Py_DecRef", void, PyObject *)(object);
            if (!by_consumer) continue;
            // A second reference makes the export one of this library, which shares the handle.
            dlb_retain(*tensor);
            CHECK(dlb_into_versioned(*tensor, &exports[thread][i]) == DLB_STATUS_OK);
            dlb_release(*tensor);
        }
    }
    pthread_t threads[THREADS];
    for (long thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, by_library || by_consumer ? release_all : import_all, (void *)thread) == 0);
    while (atomic_load(&started) < THREADS) continue;
    if (!by_library && !by_consumer) {
        // Lets the threads run Python code.
        CHECK(FN("PyRun_SimpleString", int, const char *)("time.sleep(0.05)") == 0);
    }
    FN("Py_FinalizeEx", int, void)();
    // A thread that releases is ended, or has leaked the rest. Others stop inside the library.
    int ends_threads = FN("Py_GetVersion", const char *, void)()[3] != '4';
    for (int thread = 0; thread < THREADS && ends_threads && by_library; thread++)
        CHECK(pthread_join(threads[thread], NULL) == 0);
    puts("ok");
    fflush(stdout);
    return 0;
}
