// Launches the kernel of examples/cuda-operators, whose PTX is in the file SCALE_PTX, by CUDA's runtime. Its functions are declared
// here, because the packages with its headers are not those that PyTorch brings.
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

struct dim3 {
    unsigned x, y, z;
};

extern "C" {
int cudaLibraryLoadData(void **library, const void *code, void *options, void **values, unsigned count,
                        void *library_options, void **library_values, unsigned library_count);
int cudaLibraryGetKernel(void **kernel, void *library, const char *name);
int cudaLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **arguments, std::size_t shared, void *stream);
}

// The kernel, or null if the driver refuses it.
inline void *load() {
    std::ifstream file(SCALE_PTX);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    void *library = nullptr, *kernel = nullptr;
    if (cudaLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) == 0) {
        cudaLibraryGetKernel(&kernel, library, "scale");
    }
    return kernel;
}

inline bool launch(const float *from, float *to, float factor, unsigned long long len, void *stream) {
    static void *const kernel = load();
    void *arguments[] = {&from, &to, &factor, &len};
    dim3 blocks{static_cast<unsigned>((len + 255) / 256), 1, 1}, threads{256, 1, 1};
    return kernel && cudaLaunchKernel(kernel, blocks, threads, arguments, 0, stream) == 0;
}
