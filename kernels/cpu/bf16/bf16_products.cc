#include "kernels/cpu/bf16/bf16_products.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/bf16/bf16_weight.h"

namespace sluice::kernels::cpu {
namespace {

// Rows as they are.
class PlainRows final : public ProductRows {
 public:
  PlainRows(int64_t max_cols, HostMemory data) : max_cols_(max_cols), data_(std::move(data)) {}

  void Use(const Weight& w) override {
    k_ = PadBf16(w.cols());
    CHECK_LE(w.cols(), max_cols_) << "wider than ContextLimits says";
  }
  int64_t work_floats() const override { return k_; }
  void Set(int64_t i, float* work) override { std::memcpy(data_.floats() + i * k_, work, size_t(k_) * sizeof(float)); }

  FloatRows view(int64_t rows) const { return {.data = data_.floats(), .k = k_, .rows = rows}; }

 private:
  const int64_t max_cols_;
  int64_t k_ = 0;
  HostMemory data_;  // [rows][k]
};

Bf16Panels Of(const Weight& w) {
  return static_cast<const Bf16Weight&>(w).view();
}
FloatRows View(const ProductRows& x, int64_t rows) {
  return static_cast<const PlainRows&>(x).view(rows);
}

class Bf16Products final : public Products {
 public:
  Bf16Products(const KernelTable& floats, const Bf16Table& kernels) : floats_(floats), kernels_(kernels) {}

  std::string_view numerics_id() const override { return "bf16w.1"; }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                               ThreadPool& pool) const override {
    return Bf16Weight::Pack(tensor, memory, floats_, pool);
  }
  size_t PackedBytes(const HostTensor& tensor) const override { return Bf16Weight::Bytes(tensor.rows, tensor.cols); }

  absl::StatusOr<std::unique_ptr<ProductRows>> NewRows(int64_t max_rows, int64_t max_cols) const override {
    const size_t bytes = size_t(max_rows * PadBf16(max_cols)) * sizeof(float);
    auto data = HostMemory::Map(bytes);
    if (!data) return absl::ResourceExhaustedError(absl::StrCat("no memory for rows of ", bytes, " bytes"));
    return std::make_unique<PlainRows>(max_cols, std::move(*data));
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
  const Bf16Table& kernels_;
};

}  // namespace

std::unique_ptr<const Products> NewBf16Products(const KernelTable& floats, const Bf16Table& kernels) {
  return std::make_unique<Bf16Products>(floats, kernels);
}

}  // namespace sluice::kernels::cpu
