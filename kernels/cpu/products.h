// How one mode of the fused context multiplies: the form its matrices are packed in, the form that rows of activations
// take on their way into a product, and the products themselves. Implemented by int8/, native/ and bf16/.
//
// Promises: a row's results depend on that row alone, and are the same bits for every range of panels. Immutable and
// shared by threads; rows belong to whoever made them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {

inline int64_t PanelsOf(const Weight& w) {
  return (w.rows() + kPanelRows - 1) / kPanelRows;
}

// Rows of activations in the mode's own form.
class ProductRows {
 public:
  virtual ~ProductRows() = default;

  // From now on rows that are multiplied by `w`, or by others of its width. `w` must outlive their use.
  virtual void Use(const Weight& w) = 0;

  // Floats that Set wants of a row: its columns, zero past them.
  virtual int64_t work_floats() const = 0;

  // Takes row i; overwrites `work`.
  virtual void Set(int64_t i, float* work) = 0;
};

class Products {
 public:
  virtual ~Products() = default;

  virtual std::string_view numerics_id() const = 0;

  // As Backend::PackLinear and PackedBytes.
  virtual absl::StatusOr<std::unique_ptr<Weight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                                       ThreadPool& pool) const = 0;
  virtual size_t PackedBytes(const HostTensor& tensor) const = 0;

  // Room for `max_rows` rows of up to `max_cols` columns.
  virtual absl::StatusOr<std::unique_ptr<ProductRows>> NewRows(int64_t max_rows, int64_t max_cols) const = 0;

  // y (+)= x Wᵀ (+ bias) of the first `rows` rows of x and the panels [begin, end).
  virtual void Multiply(const Weight& w, const ProductRows& x, int64_t rows, const ProductOutput& out, int64_t begin,
                        int64_t end) const = 0;

  // h [rows][ld] = f(x Gᵀ) * (x Uᵀ) for the panels [begin, end) of gate and up.
  virtual void GateUp(const Weight& gate, const Weight& up, const ProductRows& x, int64_t rows, GateFunction f,
                      float* h, int64_t ld, int64_t begin, int64_t end) const = 0;
};

}  // namespace sluice::kernels::cpu
