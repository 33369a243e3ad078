// Destructors of C++ that release tensors of Python objects on threads without the GIL, while Python is shut
// down. The argument is libpython. It prints "ok".

#include <dlbridge.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <vector>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            std::printf("line %d: %s (%s)\n", __LINE__, #condition, dlb_last_error());    \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

namespace {

void *python;

template <class Function>
Function *function(const char *name) {
    void *found = dlsym(python, name);
    CHECK(found);
    return reinterpret_cast<Function *>(found);
}

} // namespace

int main(int, char **arguments) {
    python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    CHECK(python);
    function<void(int)>("Py_InitializeEx")(0);
    // They are freed last, slowly enough that the threads are found waiting for the GIL.
    CHECK(function<int(const char *)>("PyRun_SimpleString")(
              "import time\n"
              "class Slow:\n"
              "    def __del__(self, sleep=time.sleep): sleep(0.02)\n"
              "slow = [Slow() for _ in range(3)]\n") == 0);
    static float number = 1;
    dlb_memory memory{};
    memory.struct_size = sizeof memory;
    memory.data = &number;
    memory.device = {DLB_DEVICE_CPU, 0};
    memory.dtype = dlb::dtype_of<float>();
    _object *object = nullptr;
    CHECK(dlb_export_python(&memory, &object) == DLB_STATUS_OK);
    std::vector<std::vector<dlb::tensor>> tensors(3);
    for (auto &list : tensors)
        for (int i = 0; i < 400; i++) list.push_back(dlb::from_python(object).value());
    std::atomic<std::size_t> started{0};
    std::vector<std::thread> threads;
    for (auto &list : tensors)
        threads.emplace_back([&] {
            started++;
            list.clear();
        });
    while (started < threads.size()) continue;
    function<int()>("Py_FinalizeEx")();
    for (std::thread &thread : threads) thread.join();
    std::puts("ok");
}
