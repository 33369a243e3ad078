// A program that starts a Python and does with it what few do. The first argument is libpython, the
// second the case; it prints "ok", or "skipped" where this Python is too old for the case.

#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

typedef struct _object PyObject;

static void *python;
static int released;
static float number = 1;

static void *function(const char *name) {
    void *found = dlsym(python, name);
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

// A function of Python by its name, result and arguments.
#define FN(name, result, ...) (*(result(**)(__VA_ARGS__))&(void *){function(name)})

static void start(void) { FN("Py_InitializeEx", void, int)(0); }
static void finish(void) { FN("Py_FinalizeEx", int, void)(); }

static void release(void *token) { (void)token; released++; }

static dlb_tensor *export_number(void) {
    dlb_memory memory = {
        .struct_size = sizeof memory, .data = &number, .release = release,
        .dtype = {DLB_TYPE_FLOAT, 32, 1}, .device = {DLB_DEVICE_CPU, 0},
    };
    dlb_tensor *tensor = NULL;
    CHECK(dlb_export(&memory, &tensor) == DLB_STATUS_OK);
    return tensor;
}

static PyObject *object_of_number(void) {
    PyObject *object = NULL;
    CHECK(dlb_into_python(export_number(), &object) == DLB_STATUS_OK);
    return object;
}

static void drop(PyObject *object) { FN("Py_DecRef", void, PyObject *)(object); }

static int run(const char *code) { return FN("PyRun_SimpleString", int, const char *)(code); }

struct foreign {
    PyObject *object;
    dlb_queue *queue;
};

// On a thread that Python does not know, while another holds the GIL.
static void *without_the_gil(void *context) {
    struct foreign *foreign = context;
    dlb_tensor *tensor = NULL;
    CHECK(dlb_from_python(foreign->object, NULL, &tensor) == DLB_STATUS_NOT_ATTACHED);
    CHECK(dlb_queue_drain(foreign->queue) == 0);
    return NULL;
}

// `PyGILState_Check` answers yes on every thread once a sub-interpreter has existed.
static void a_foreign_thread_is_refused_after_a_sub_interpreter(void) {
    start();
    void *main_state = FN("PyThreadState_Get", void *, void)();
    void *other = FN("Py_NewInterpreter", void *, void)();
    CHECK(other);
    FN("Py_EndInterpreter", void, void *)(other);
    FN("PyThreadState_Swap", void *, void *)(main_state);

    struct foreign foreign = {object_of_number(), dlb_queue_new(NULL, NULL)};
    dlb_tensor *tensor = NULL;
    CHECK(dlb_from_python(foreign.object, NULL, &tensor) == DLB_STATUS_OK);
    CHECK(dlb_queue_release(foreign.queue, tensor) == DLB_STATUS_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, without_the_gil, &foreign) == 0);
    pthread_join(thread, NULL);
    CHECK(dlb_queue_drain(foreign.queue) == 1 && released == 0);
    drop(foreign.object);
    CHECK(released == 1);
    dlb_queue_close(foreign.queue);
    finish();
}

static void queues_drain_before_and_after_python_runs(void) {
    dlb_queue *queue = dlb_queue_new(NULL, NULL);
    CHECK(dlb_queue_release(queue, export_number()) == DLB_STATUS_OK);
    CHECK(dlb_queue_drain(queue) == 1 && released == 1);
    start();
    PyObject *object = object_of_number();
    dlb_tensor *tensor = NULL, *another = NULL;
    CHECK(dlb_from_python(object, NULL, &tensor) == DLB_STATUS_OK);
    CHECK(dlb_from_python(object, NULL, &another) == DLB_STATUS_OK);
    drop(object);
    finish();
    // Python has gone: what came from its objects is not touched, the rest is released.
    dlb_release(another);
    CHECK(dlb_queue_release(queue, tensor) == DLB_STATUS_OK);
    CHECK(dlb_queue_release(queue, export_number()) == DLB_STATUS_OK);
    CHECK(dlb_queue_drain(queue) == 2 && released == 2 && dlb_queue_pending(queue) == 0);
    CHECK(dlb_into_python(tensor = export_number(), &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(!strcmp(dlb_last_error(), "python: it is not running"));
    dlb_release(tensor);
    dlb_queue_close(queue);
}

static void a_python_that_starts_again_is_refused(void) {
    start();
    drop(object_of_number());
    finish();
    start();
    PyObject *object = NULL;
    dlb_tensor *tensor = export_number();
    CHECK(dlb_into_python(tensor, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(strstr(dlb_last_error(), "started again") != NULL);
    dlb_release(tensor);
    finish();
}

static void a_second_interpreter_is_refused_by_name(void) {
    start();
    void *main_state = FN("PyThreadState_Get", void *, void)();
    drop(object_of_number());
    // PyInterpreterConfig of 3.12: a GIL of its own, and what that demands.
    struct { int integers[7]; } config = {{0, 0, 0, 1, 0, 1, 2}};
    struct { const char *message[4]; int code; } status = {{0}, 0};
    void *other = NULL;
    if (!dlsym(python, "Py_NewInterpreterFromConfig")) {
        finish();
        puts("skipped");
        exit(0);
    }
    // The status is returned through memory of the caller, whose address comes first.
    FN("Py_NewInterpreterFromConfig", void *, void *, void *, void *)(&status, &other, &config);
    CHECK(other);
    PyObject *object = NULL;
    dlb_tensor *tensor = export_number();
    CHECK(dlb_into_python(tensor, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(strstr(dlb_last_error(), "expected interpreter 0") != NULL);
    CHECK(strstr(dlb_last_error(), "found interpreter 1") != NULL);
    dlb_release(tensor);
    FN("Py_EndInterpreter", void, void *)(other);
    FN("PyThreadState_Swap", void *, void *)(main_state);
    drop(object_of_number());
    finish();
}

// A tensor of the main interpreter, released on a thread that is in another one.
static void a_release_in_another_interpreter_is_deferred(void) {
    start();
    void *main_state = FN("PyThreadState_Get", void *, void)();
    PyObject *object = object_of_number();
    dlb_tensor *tensor = NULL, *other_tensor = NULL;
    CHECK(dlb_from_python(object, NULL, &tensor) == DLB_STATUS_OK);
    drop(object);
    void *other = FN("Py_NewInterpreter", void *, void)();
    CHECK(other);
    dlb_release(tensor);
    CHECK(released == 0);
    tensor = export_number();
    CHECK(dlb_into_python(tensor, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(!strstr(dlb_last_error(), "PyGILState_Ensure"));
    FN("Py_EndInterpreter", void, void *)(other);
    FN("PyThreadState_Swap", void *, void *)(main_state);
    CHECK(released == 0);
    // The next call in the main interpreter releases it.
    CHECK(dlb_into_python(tensor, &object) == DLB_STATUS_OK);
    CHECK(released == 1);
    CHECK(dlb_from_python(object, NULL, &other_tensor) == DLB_STATUS_OK);
    drop(object);
    dlb_release(other_tensor);
    CHECK(released == 2);
    finish();
}

static void an_old_python_is_refused_by_its_version(void) {
    start();
    PyObject *object = NULL;
    dlb_tensor *tensor = export_number();
    CHECK(dlb_into_python(tensor, &object) == DLB_STATUS_NOT_ATTACHED);
    CHECK(strstr(dlb_last_error(), "python: expected 3.11 or newer, found 3.") != NULL);
    dlb_release(tensor);
    finish();
}

static void another_python_is_refused(void) {
    CHECK(dlb_use_python(python) == DLB_STATUS_OK);
    CHECK(dlb_use_python(python) == DLB_STATUS_OK);
    void *other = dlopen("libm.so.6", RTLD_NOW);
    CHECK(other && dlb_use_python(other) == DLB_STATUS_INVALID);
    CHECK(strstr(dlb_last_error(), "found no Python in it") != NULL);
}

static void the_class_is_immutable(void) {
    start();
    PyObject *object = object_of_number();
    PyObject *main = FN("PyImport_AddModule", PyObject *, const char *)("__main__");
    FN("PyObject_SetAttrString", int, PyObject *, const char *, PyObject *)(main, "o", object);
    drop(object);
    CHECK(run("try: type(o).__dlpack__ = None\n"
              "except TypeError: pass\n"
              "else: raise SystemError\n"
              "del o") == 0);
    CHECK(released == 1);
    finish();
}

#define CASE(name) {#name, name}
static const struct { const char *name; void (*run)(void); } cases[] = {
    CASE(a_foreign_thread_is_refused_after_a_sub_interpreter),
    CASE(queues_drain_before_and_after_python_runs),
    CASE(a_python_that_starts_again_is_refused),
    CASE(a_second_interpreter_is_refused_by_name),
    CASE(a_release_in_another_interpreter_is_deferred),
    CASE(an_old_python_is_refused_by_its_version),
    CASE(another_python_is_refused),
    CASE(the_class_is_immutable),
};

int main(int count, char **arguments) {
    CHECK(count == 3);
    python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!python) {
        printf("%s\n", dlerror());
        return 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strcmp(cases[i].name, arguments[2])) {
            cases[i].run();
            puts("ok");
            return 0;
        }
    }
    printf("no case %s\n", arguments[2]);
    return 1;
}
