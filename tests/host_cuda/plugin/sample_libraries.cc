#include "tests/host_cuda/plugin/sample_libraries.h"

#include <dlfcn.h>

namespace host_cuda::sample {
namespace {

// A library for as long as the process lives.
class Library {
 public:
  explicit Library(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) why_ = dlerror();
  }

  template <class Function>
  Library& Get(const char* symbol, Function* function) {
    if (!why_.empty()) return *this;
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (*function == nullptr) why_ = name_ + " has no " + symbol;
    return *this;
  }

  const std::string& why() const { return why_; }

 private:
  std::string name_, why_;
  void* handle_;
};

}  // namespace

std::string Open(BlasLt* blas) {
  return Library("libcublasLt.so.13")
      .Get("cublasLtCreate", &blas->create)
      .Get("cublasLtDestroy", &blas->destroy)
      .Get("cublasLtMatmulDescCreate", &blas->description_create)
      .Get("cublasLtMatmulDescDestroy", &blas->description_destroy)
      .Get("cublasLtMatrixLayoutCreate", &blas->layout_create)
      .Get("cublasLtMatrixLayoutDestroy", &blas->layout_destroy)
      .Get("cublasLtMatmul", &blas->matmul)
      .why();
}

std::string Open(Nccl* nccl) {
  return Library("libnccl.so.2")
      .Get("ncclCommInitAll", &nccl->init_all)
      .Get("ncclCommDestroy", &nccl->destroy)
      .Get("ncclGroupStart", &nccl->group_start)
      .Get("ncclGroupEnd", &nccl->group_end)
      .Get("ncclAllReduce", &nccl->all_reduce)
      .why();
}

}  // namespace host_cuda::sample
