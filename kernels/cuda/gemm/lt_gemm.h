// The linear layers by cuBLASLt, for steps of many rows. The contract of gemm.h but for the bits: those of a row depend
// on how many rows are beside it, since the library chooses by the shape.
//
// What the library finds for a shape is kept, so that it is asked once. It writes to memory of its own that is there
// from the start, so a product may be part of a recorded step. The first one of a shape should not be, because the
// library may load its kernels then.
//
// Where the library has nothing for a shape, gemm.h does it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/lt_library.h"

namespace sluice::kernels::cuda {

class LtGemm {
 public:
  // On the thread's current device. `workspace`: device memory of the library's own, which outlives this; more than 32
  // MiB have no use.
  static absl::StatusOr<std::unique_ptr<LtGemm>> Create(const LtLibrary& lt, void* workspace, size_t workspace_bytes);
  ~LtGemm();
  LtGemm(const LtGemm&) = delete;

  // Where something follows the sums (a bias, a gate), args.workspace holds them meanwhile, as many rows at a time as
  // fit. INVALID_ARGUMENT as cudaErrorInvalidValue of Gemm.
  absl::Status Multiply(const GemmArgs& args, cudaStream_t stream);

  int64_t searches() const { return searches_; }  // shapes that the library was asked about
  int64_t products() const { return products_; }  // that it computed
  int64_t refused() const { return refused_; }    // shapes that it had nothing for

 private:
  // All that the choice depends on.
  struct Shape {
    int n = 0, m = 0, k = 0;
    int64_t a_stride = 0, out_stride = 0;
    bool f32 = false;        // the output
    uint32_t alignment = 0;  // of all matrices, in bytes
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;

  LtGemm(const LtLibrary& lt, void* workspace, size_t workspace_bytes);
  // Null: the library has nothing for it.
  absl::StatusOr<const Plan*> PlanFor(const Shape& shape);
  absl::StatusOr<std::unique_ptr<Plan>> Search(const Shape& shape);
  // out = a Wᵀ, or out += a Wᵀ. False: not by the library.
  absl::StatusOr<bool> Product(const GemmArgs& args, const GemmPart& part, bool f32, bool add, cudaStream_t stream);
  absl::Status Chunk(const GemmArgs& args, cudaStream_t stream);

  const LtLibrary& lt_;
  void* const workspace_;
  const size_t workspace_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, std::unique_ptr<Plan>> plans_;  // null: there is none
  int64_t searches_ = 0, products_ = 0, refused_ = 0;
};

}  // namespace sluice::kernels::cuda
