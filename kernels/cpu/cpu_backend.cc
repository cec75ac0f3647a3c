#include "kernels/cpu/cpu_backend.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_context.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/isa.h"

namespace sluice::kernels {
namespace {

constexpr int kMaxThreads = 1024;

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, CpuIsa isa) : threads_(threads), kernels_(cpu::KernelsFor(isa)) {}

  std::string_view numerics_id() const override { return "f32.1"; }
  KvDType kv_dtype() const override { return KvDType::kF32; }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(const HostTensor& tensor) const override {
    return cpu::CpuWeight::Pack(tensor);
  }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks) const override {
    return cpu::CpuKvPool::Create(layout, num_blocks);
  }
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const override {
    return cpu::CpuContext::Create(limits, kernels_, threads_);
  }

 private:
  const int threads_;
  const cpu::KernelTable& kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("threads is ", options.threads, "; it may be 1 to ", kMaxThreads));
  }
  const absl::StatusOr<CpuIsa> isa = ResolveCpuIsa(options.isa);
  if (!isa.ok()) return isa.status();
  return std::make_unique<CpuBackend>(options.threads, *isa);
}

}  // namespace sluice::kernels
