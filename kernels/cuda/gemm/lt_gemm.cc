#include "kernels/cuda/gemm/lt_gemm.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cuda/backend/errors.h"

namespace sluice::kernels::cuda {
namespace {

// Chunks of prompts have many lengths; their plans are forgotten all at once.
constexpr size_t kMostPlans = 2048;
constexpr uint32_t kMostAlignment = 256;

uint32_t AlignmentOf(const void* pointer) {
  return uint32_t(
      std::min<uintptr_t>(kMostAlignment, uintptr_t(1) << std::countr_zero(reinterpret_cast<uintptr_t>(pointer))));
}

// Products go straight to where they are wanted; else something follows them.
bool Direct(const GemmArgs& args) {
  if (args.output == GemmOutput::kAdd) return true;
  if (args.output != GemmOutput::kBf16 && args.output != GemmOutput::kF32) return false;
  return std::none_of(args.parts, args.parts + args.num_parts, [](const GemmPart& p) { return p.bias != nullptr; });
}

}  // namespace

// Descriptors of one shape and the algorithm for it. A column-major matrix with a leading dimension is a row-major one
// transposed: outᵀ [n][m] = W [n][k] aᵀ [k][m].
struct LtGemm::Plan {
  explicit Plan(const LtLibrary& library) : lt(library) {}
  Plan(const Plan&) = delete;
  ~Plan() {
    if (about != nullptr) (void)lt.description_destroy(about);
    for (cublasLtMatrixLayout_t layout : {w, a, out}) {
      if (layout != nullptr) (void)lt.layout_destroy(layout);
    }
  }

  cublasStatus_t Describe(const Shape& s) {
    const cudaDataType out_type = s.f32 ? CUDA_R_32F : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t status = lt.description_create(&about, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt.description_set(about, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt.layout_create(&w, CUDA_R_16BF, uint64_t(s.k), uint64_t(s.n), s.k);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt.layout_create(&a, CUDA_R_16BF, uint64_t(s.k), uint64_t(s.m), s.a_stride);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt.layout_create(&out, out_type, uint64_t(s.n), uint64_t(s.m), s.out_stride);
    }
    return status;
  }

  const LtLibrary& lt;
  cublasLtMatmulDesc_t about = nullptr;
  cublasLtMatrixLayout_t w = nullptr, a = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

absl::StatusOr<std::unique_ptr<LtGemm>> LtGemm::Create(const LtLibrary& lt, void* workspace, size_t workspace_bytes) {
  std::unique_ptr<LtGemm> gemm(new LtGemm(lt, workspace, workspace_bytes));
  if (absl::Status status = LtStatus(lt, lt.create(&gemm->handle_), "starting cuBLASLt"); !status.ok()) return status;
  return gemm;
}

LtGemm::LtGemm(const LtLibrary& lt, void* workspace, size_t workspace_bytes)
    : lt_(lt), workspace_(workspace), workspace_bytes_(workspace_bytes) {}

LtGemm::~LtGemm() {
  plans_.clear();
  if (handle_ != nullptr) (void)lt_.destroy(handle_);
}

absl::StatusOr<std::unique_ptr<LtGemm::Plan>> LtGemm::Search(const Shape& shape) {
  auto plan = std::make_unique<Plan>(lt_);
  cublasLtMatmulPreference_t wishes = nullptr;
  cublasStatus_t status = plan->Describe(shape);
  if (status == CUBLAS_STATUS_SUCCESS) status = lt_.preference_create(&wishes);
  const auto wish = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS) status = lt_.preference_set(wishes, attribute, &value, sizeof value);
  };
  wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes_));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    wish(attribute, shape.alignment);
  }
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    ++searches_;
    status =
        lt_.get_heuristic(handle_, plan->about, plan->w, plan->a, plan->out, plan->out, wishes, 1, &result, &found);
  }
  if (wishes != nullptr) (void)lt_.preference_destroy(wishes);
  const bool none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                    (status == CUBLAS_STATUS_SUCCESS && (found == 0 || result.state != CUBLAS_STATUS_SUCCESS));
  if (none) {
    ++refused_;
    LOG(WARNING) << "cuBLASLt has nothing for a product of " << shape.m << " rows, " << shape.n << " columns and depth "
                 << shape.k << ": our own computes it";
    return nullptr;
  }
  if (absl::Status failed = LtStatus(lt_, status, "cuBLASLt's heuristic"); !failed.ok()) return failed;
  plan->algorithm = result.algo;
  return plan;
}

absl::StatusOr<const LtGemm::Plan*> LtGemm::PlanFor(const Shape& shape) {
  if (const auto it = plans_.find(shape); it != plans_.end()) return it->second.get();
  auto plan = Search(shape);
  if (!plan.ok()) return plan.status();
  if (plans_.size() >= kMostPlans) plans_.clear();
  return plans_.emplace(shape, *std::move(plan)).first->second.get();
}

absl::StatusOr<bool> LtGemm::Product(const GemmArgs& args, const GemmPart& part, bool f32, bool add,
                                     cudaStream_t stream) {
  auto plan = PlanFor({.n = part.n,
                       .m = args.m,
                       .k = args.k,
                       .a_stride = args.a_stride,
                       .out_stride = part.stride,
                       .f32 = f32,
                       .alignment = std::min({AlignmentOf(args.a), AlignmentOf(part.w), AlignmentOf(part.out)})});
  if (!plan.ok()) return plan.status();
  const Plan* p = *plan;
  if (p == nullptr) return false;
  const float alpha = 1, beta = add ? 1 : 0;
  const cublasStatus_t status =
      lt_.matmul(handle_, p->about, &alpha, part.w, p->w, args.a, p->a, &beta, part.out, p->out, part.out, p->out,
                 &p->algorithm, workspace_, workspace_bytes_, stream);
  if (absl::Status failed = LtStatus(lt_, status, "cuBLASLt's product"); !failed.ok()) return failed;
  ++products_;
  return true;
}

// All rows at once; what follows the sums finds room for them.
absl::Status LtGemm::Chunk(const GemmArgs& args, cudaStream_t stream) {
  const bool direct = Direct(args);
  int columns = 0;
  for (int i = 0; i < args.num_parts; ++i) columns += args.parts[i].n;
  float* sums = static_cast<float*>(args.workspace);
  for (int i = 0; i < args.num_parts; ++i) {
    GemmPart part = args.parts[i];
    if (!direct) {
      part.out = sums;
      part.stride = columns;
      sums += part.n;
    }
    const bool f32 = !direct || args.output != GemmOutput::kBf16;
    const auto done = Product(args, part, f32, args.output == GemmOutput::kAdd, stream);
    if (!done.ok()) return done.status();
    if (*done) continue;
    GemmArgs rest = args;
    if (direct) {  // nothing is added twice
      std::copy(args.parts + i, args.parts + args.num_parts, rest.parts);
      rest.num_parts = args.num_parts - i;
    }
    return ToStatus(Gemm(rest, stream), "a product");
  }
  return direct ? absl::OkStatus() : ToStatus(FinishProducts(args, stream), "what follows a product");
}

absl::Status LtGemm::Multiply(const GemmArgs& args, cudaStream_t stream) {
  if (!IsGemm(args)) return absl::InvalidArgumentError("not a product");
  if (args.m == 0) return absl::OkStatus();
  int most = args.m;
  if (!Direct(args)) {
    int64_t columns = 0;
    for (int i = 0; i < args.num_parts; ++i) columns += args.parts[i].n;
    most = int(std::min<int64_t>(args.m, int64_t(args.workspace_bytes / sizeof(float)) / columns));
    if (most == 0) return ToStatus(Gemm(args, stream), "a product");
  }
  for (int first = 0; first < args.m; first += most) {
    GemmArgs chunk = args;
    chunk.m = std::min(most, args.m - first);
    chunk.a += first * args.a_stride;
    const bool bf16 = args.output != GemmOutput::kF32 && args.output != GemmOutput::kAdd;
    for (int i = 0; i < args.num_parts; ++i) {
      if (chunk.parts[i].out == nullptr) continue;  // the second of a gate
      chunk.parts[i].out =
          static_cast<std::byte*>(chunk.parts[i].out) +
          size_t(first) * size_t(args.parts[i].stride) * (bf16 ? sizeof(__nv_bfloat16) : sizeof(float));
    }
    if (absl::Status status = Chunk(chunk, stream); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cuda
