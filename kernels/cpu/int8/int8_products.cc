#include "kernels/cpu/int8/int8_products.h"

#include "kernels/cpu/int8/int8_weight.h"
#include "kernels/cpu/int8/quantised_rows.h"

namespace sluice::kernels::cpu {
namespace {

const Int8Weight& Of(const Weight& w) {
  return static_cast<const Int8Weight&>(w);
}
Int8Rows View(const ProductRows& x, int64_t rows) {
  return static_cast<const QuantisedRows&>(x).view(rows);
}

class Int8Products final : public Products {
 public:
  Int8Products(const KernelTable& floats, const Int8Table& kernels) : floats_(floats), kernels_(kernels) {}

  std::string_view numerics_id() const override { return "int8h.1"; }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                               ThreadPool& pool) const override {
    return Int8Weight::Pack(tensor, memory, floats_, kernels_, pool);
  }
  size_t PackedBytes(const HostTensor& tensor) const override { return Int8Weight::Bytes(tensor.rows, tensor.cols); }

  absl::StatusOr<std::unique_ptr<ProductRows>> NewRows(int64_t max_rows, int64_t max_cols) const override {
    return QuantisedRows::Create(kernels_, max_rows, max_cols);
  }
  void Multiply(const Weight& w, const ProductRows& x, int64_t rows, const ProductOutput& out, int64_t begin,
                int64_t end) const override {
    kernels_.matmul(View(x, rows), Of(w).view(), out, begin, end);
  }
  void GateUp(const Weight& gate, const Weight& up, const ProductRows& x, int64_t rows, GateFunction f, float* h,
              int64_t ld, int64_t begin, int64_t end) const override {
    kernels_.gate_up(View(x, rows), Of(gate).view(), Of(up).view(), f, h, ld, begin, end);
  }

 private:
  const KernelTable& floats_;
  const Int8Table& kernels_;
};

}  // namespace

std::unique_ptr<const Products> NewInt8Products(const KernelTable& floats, const Int8Table& kernels) {
  return std::make_unique<Int8Products>(floats, kernels);
}

}  // namespace sluice::kernels::cpu
