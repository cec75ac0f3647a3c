#include "kernels/cpu/int8/int8_backend.h"

#include <string>

#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/int8/int8_weight.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {
namespace {

class Int8Backend final : public Backend {
 public:
  Int8Backend(const Int8Kernels& kernels, int threads) : kernels_(kernels), threads_(threads) {}

  std::string_view numerics_id() const override { return "int8h.1"; }
  KvDType kv_dtype() const override { return KvDType::kBF16; }

  absl::StatusOr<std::unique_ptr<Weight>> PackTable(const HostTensor& tensor) const override {
    return CpuWeight::Pack(tensor);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor, PackedMemory memory) const override {
    ThreadPool pool(memory.filled ? 1 : threads_);
    return Int8Weight::Pack(tensor, memory, kernels_.floats, kernels_.int8, pool);
  }
  size_t PackedBytes(int64_t rows, int64_t cols) const override { return Int8Weight::Bytes(rows, cols); }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks) const override {
    return CpuKvPool::Create(layout, num_blocks, KvDType::kBF16);
  }
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const override {
    return Int8Context::Create(limits, kernels_, threads_);
  }

 private:
  const Int8Kernels kernels_;
  const int threads_;
};

}  // namespace

std::unique_ptr<Backend> NewInt8Backend(const Int8Kernels& kernels, int threads) {
  return std::make_unique<Int8Backend>(kernels, threads);
}

}  // namespace sluice::kernels::cpu
