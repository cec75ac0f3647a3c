#include "kernels/cpu/native/native_products.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/native/native_weight.h"

namespace sluice::kernels::cpu {
namespace {

class RoundedRows final : public ProductRows {
 public:
  RoundedRows(const NativeTable& kernels, int64_t max_rows, int64_t max_cols, HostMemory data)
      : kernels_(kernels), max_blocks_(NativeBlocks(max_cols)), data_(std::move(data)) {
    const size_t blocks = size_t(max_rows * max_blocks_);
    scales_.resize(blocks);
    sums_.resize(blocks);
    scaled_sums_.resize(blocks);
  }

  void Use(const Weight& w) override {
    blocks_ = NativeBlocks(w.cols());
    CHECK_LE(blocks_, max_blocks_) << "wider than ContextLimits says";
  }
  int64_t work_floats() const override { return blocks_ * kNativeBlock; }
  void Set(int64_t i, float* work) override {
    const size_t at = size_t(i * blocks_);
    kernels_.round(work, blocks_, bytes() + i * blocks_ * kNativeBlock, &scales_[at], &sums_[at], &scaled_sums_[at]);
  }

  BlockRows view(int64_t rows) const { return {bytes(), scales_.data(), sums_.data(), scaled_sums_.data(), rows}; }

 private:
  int8_t* bytes() const { return reinterpret_cast<int8_t*>(data_.data()); }

  const NativeTable& kernels_;
  const int64_t max_blocks_;
  int64_t blocks_ = 0;
  HostMemory data_;                 // [rows][blocks * 32]
  std::vector<float> scales_;       // [rows][blocks]
  std::vector<int32_t> sums_;       // [rows][blocks]
  std::vector<float> scaled_sums_;  // [rows][blocks]
};

NativePanels Of(const Weight& w) {
  return static_cast<const NativeWeight&>(w).view();
}
BlockRows View(const ProductRows& x, int64_t rows) {
  return static_cast<const RoundedRows&>(x).view(rows);
}

class NativeProducts final : public Products {
 public:
  NativeProducts(const KernelTable& floats, const NativeTable& kernels) : floats_(floats), kernels_(kernels) {}

  std::string_view numerics_id() const override { return "native.1"; }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                               ThreadPool& pool) const override {
    return NativeWeight::Pack(tensor, memory, floats_, pool);
  }
  size_t PackedBytes(const HostTensor& tensor) const override { return NativeWeight::Bytes(tensor); }

  absl::StatusOr<std::unique_ptr<ProductRows>> NewRows(int64_t max_rows, int64_t max_cols) const override {
    const size_t bytes = size_t(max_rows * NativeBlocks(max_cols) * kNativeBlock);
    auto data = HostMemory::Map(bytes);
    if (!data) return absl::ResourceExhaustedError(absl::StrCat("no memory for rounded rows of ", bytes, " bytes"));
    return std::make_unique<RoundedRows>(kernels_, max_rows, max_cols, std::move(*data));
  }
  void Multiply(const Weight& w, const ProductRows& x, int64_t rows, const ProductOutput& out, int64_t begin,
                int64_t end) const override {
    kernels_.matmul(View(x, rows), Of(w), out, begin, end);
  }
  void GateUp(const Weight& gate, const Weight& up, const ProductRows& x, int64_t rows, GateFunction f, float* h,
              int64_t ld, int64_t begin, int64_t end) const override {
    kernels_.gate_up(View(x, rows), Of(gate), Of(up), f, h, ld, begin, end);
  }

 private:
  const KernelTable& floats_;
  const NativeTable& kernels_;
};

}  // namespace

std::unique_ptr<const Products> NewNativeProducts(const KernelTable& floats, const NativeTable& kernels) {
  return std::make_unique<NativeProducts>(floats, kernels);
}

}  // namespace sluice::kernels::cpu
