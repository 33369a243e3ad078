// A program that opens the library, makes a Python object, closes the library, and goes on with the
// object. The arguments are libpython, the library and its function that makes the object.

#include <dlbridge.h>
#include <dlfcn.h>
#include <stdio.h>

typedef struct _object PyObject;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("line %d: %s\n", __LINE__, #condition);                     \
            return 1;                                                          \
        }                                                                      \
    } while (0)

// A function of a library by its name and type.
#define FN(library, name, result, ...)                                         \
    (*(result(**)(__VA_ARGS__))&(void *){dlsym(library, name)})

int main(int count, char **arguments) {
    CHECK(count == 4);
    void *python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    CHECK(python);
    FN(python, "Py_InitializeEx", void, int)(0);
    void *library = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    float number = 1;
    dlb_memory memory = {
        .struct_size = sizeof memory, .data = &number,
        .dtype = {DLB_TYPE_FLOAT, 32, 1}, .device = {DLB_DEVICE_CPU, 0},
    };
    PyObject *object = NULL;
    CHECK(FN(library, arguments[3], dlb_status, const dlb_memory *, PyObject **)(&memory, &object) == DLB_STATUS_OK);
    CHECK(dlclose(library) == 0);
    PyObject *device = FN(python, "PyObject_CallMethod", PyObject *, PyObject *, const char *, const char *)(object, "__dlpack_device__", NULL);
    CHECK(device);
    FN(python, "Py_DecRef", void, PyObject *)(device);
    FN(python, "Py_DecRef", void, PyObject *)(object);
    FN(python, "Py_FinalizeEx", int, void)();
    puts("ok");
    return 0;
}
