/* The C structs of DLPack 1.3 as its standard lays them out, and what a share costs at least.
 * Behaviour does not belong here.
 */
#ifndef BENCH_FLOOR_ABI_H
#define BENCH_FLOOR_ABI_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { MAJOR = 1, MINOR = 3, CPU = 1, FLOAT = 2 };

typedef struct {
    uint32_t major, minor;
} Version;

typedef struct {
    int32_t kind, id;
} Device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DType;

typedef struct {
    void *data;
    Device device;
    int32_t ndim;
    DType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct Legacy {
    Tensor tensor;
    void *context;
    void (*deleter)(struct Legacy *);
} Legacy;

typedef struct Managed {
    Version version;
    void *context;
    void (*deleter)(struct Managed *);
    uint64_t flags;
    Tensor tensor;
} Managed;

typedef struct Exchange {
    Version version;
    struct Exchange *previous;
    int (*allocate)(Tensor *, Managed **, void *, void (*)(void *, const char *, const char *));
    int (*from_object)(void *object, Managed **);
    int (*to_object)(Managed *, void **object);
    int (*borrow)(void *object, Tensor *);
    int (*stream)(int32_t kind, int32_t id, void **);
} Exchange;

#define VERSIONED "dltensor_versioned"
#define VERSIONED_USED "used_dltensor_versioned"
#define LEGACY "dltensor"
#define LEGACY_USED "used_dltensor"

/* import.c: every one takes an array of two axes and gives its first element. */
int import_ready(void);
/* The remembered table of an object's type; null and an exception if there is none. */
const Exchange *exchange_of(PyObject *object);
/* Whether the tensor is what the benchmark reads; an exception if not. */
int readable(const Tensor *tensor);
PyObject *first_element(const void *data);
/* The first element of a tensor that is readable; null and an exception if it is not. */
PyObject *read_tensor(const Tensor *tensor);
PyObject *read_capsule(PyObject *module, PyObject *array);
PyObject *read_exchange(PyObject *module, PyObject *array);
/* The sum of one or two vectors of float64: of their elements, or of the products. */
PyObject *call_capsule(PyObject *module, PyObject *const *arrays, Py_ssize_t count);
PyObject *call_exchange(PyObject *module, PyObject *const *arrays, Py_ssize_t count);

/* export.c: new tensors of two rows and three columns, 1.5, 2.5 and so on. */
int export_ready(PyObject *module);
PyObject *share(PyObject *module, PyObject *nothing);
PyObject *make(PyObject *module, PyObject *nothing);
PyObject *make_exchange(PyObject *module, PyObject *like);

/* buffer.c: the buffer protocol. */
PyObject *read_line(PyObject *module, PyObject *list);

#endif
