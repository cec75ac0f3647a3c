#include "kernels/cpu/cpu_backend.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/bf16/bf16_products.h"
#include "kernels/cpu/cpu_context.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/int8/int8_products.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/native/native_products.h"
#include "kernels/cpu/panel_backend.h"

namespace sluice::kernels {
namespace {

constexpr int kMaxThreads = 1024;

class F32Backend final : public Backend {
 public:
  F32Backend(int threads, CpuIsa isa) : threads_(threads), kernels_(cpu::KernelsFor(isa)) {}

  std::string_view numerics_id() const override { return "f32.1"; }
  KvDType kv_dtype() const override { return KvDType::kF32; }

  absl::StatusOr<std::unique_ptr<Weight>> PackTable(const HostTensor& tensor) const override {
    return cpu::CpuWeight::Pack(tensor);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor, PackedMemory) const override {
    return cpu::CpuWeight::Pack(tensor);
  }
  std::string_view packing_id() const override { return numerics_id(); }
  size_t PackedBytes(const HostTensor&) const override { return 0; }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks,
                                                    std::byte* memory) const override {
    return cpu::CpuKvPool::Create(layout, num_blocks, KvDType::kF32, memory);
  }
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const override {
    return cpu::CpuContext::Create(limits, kernels_, threads_);
  }

 private:
  const int threads_;
  const cpu::KernelTable& kernels_;
};

std::unique_ptr<const cpu::Products> ProductsOf(CpuCompute compute, CpuIsa isa) {
  switch (compute) {
    case CpuCompute::kNative:
      return cpu::NewNativeProducts(cpu::KernelsFor(isa), cpu::NativeKernelsFor(isa));
    case CpuCompute::kBf16:
      return cpu::NewBf16Products(cpu::KernelsFor(isa), cpu::Bf16KernelsFor(isa));
    default:
      return cpu::NewInt8Products(cpu::KernelsFor(isa), cpu::Int8KernelsFor(isa));
  }
}

}  // namespace

std::optional<CpuCompute> CpuComputeFromName(std::string_view name) {
  if (name == "f32") return CpuCompute::kF32;
  if (name == "int8") return CpuCompute::kInt8;
  if (name == "native") return CpuCompute::kNative;
  if (name == "bf16") return CpuCompute::kBf16;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("threads is ", options.threads, "; it may be 1 to ", kMaxThreads));
  }
  const absl::StatusOr<CpuIsa> isa = ResolveCpuIsa(options.isa);
  if (!isa.ok()) return isa.status();
  const bool f32 = options.compute == CpuCompute::kF32;
  const KvDType kv = options.kv.value_or(f32 ? KvDType::kF32 : KvDType::kBF16);
  if (f32 != (kv == KvDType::kF32)) {
    return absl::InvalidArgumentError(
        absl::StrCat("K and V in ", std::string(Name(kv)), ": arithmetic in f32 has f32, all other has bf16 or int8"));
  }
  if (f32) return std::make_unique<F32Backend>(options.threads, *isa);
  return cpu::NewPanelBackend(ProductsOf(options.compute, *isa), {cpu::KernelsFor(*isa), cpu::KvFor(*isa, kv)}, kv,
                              options.threads);
}

}  // namespace sluice::kernels
