#include "kernels/cpu/panel_backend.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {
namespace {

class PanelBackend final : public Backend {
 public:
  PanelBackend(std::unique_ptr<const Products> products, const FusedKernels& kernels, KvDType kv_dtype, int threads)
      : products_(std::move(products)),
        kernels_(kernels),
        kv_dtype_(kv_dtype),
        threads_(threads),
        numerics_id_(absl::StrCat(std::string(products_->numerics_id()), kv_dtype == KvDType::kInt8 ? "+kv8.1" : "")) {}

  std::string_view numerics_id() const override { return numerics_id_; }
  KvDType kv_dtype() const override { return kv_dtype_; }

  absl::StatusOr<std::unique_ptr<Weight>> PackTable(const HostTensor& tensor) const override {
    return CpuWeight::Pack(tensor);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor, PackedMemory memory) const override {
    ThreadPool pool(memory.filled ? 1 : threads_);
    return products_->Pack(tensor, memory, pool);
  }
  std::string_view packing_id() const override { return products_->numerics_id(); }
  size_t PackedBytes(const HostTensor& tensor) const override { return products_->PackedBytes(tensor); }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks,
                                                    std::byte* memory) const override {
    return CpuKvPool::Create(layout, num_blocks, kv_dtype_, memory);
  }
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const override {
    return FusedContext::Create(limits, *products_, kernels_, threads_);
  }

 private:
  const std::unique_ptr<const Products> products_;
  const FusedKernels kernels_;
  const KvDType kv_dtype_;
  const int threads_;
  const std::string numerics_id_;
};

}  // namespace

std::unique_ptr<Backend> NewPanelBackend(std::unique_ptr<const Products> products, const FusedKernels& kernels,
                                         KvDType kv_dtype, int threads) {
  return std::make_unique<PanelBackend>(std::move(products), kernels, kv_dtype, threads);
}

}  // namespace sluice::kernels::cpu
