#include "kernels/cuda/gemm/lt_gemm.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "kernels/cuda/testing/products.h"
#include "tests/host_cuda/runtime/control.h"

namespace sluice::kernels::cuda {
namespace {

constexpr size_t kWorkspace = size_t(1) << 20, kScratch = size_t(4) << 20;

const LtLibrary kLinked = {.get_version = &cublasLtGetVersion,
                           .get_status_string = &cublasLtGetStatusString,
                           .create = &cublasLtCreate,
                           .destroy = &cublasLtDestroy,
                           .description_create = &cublasLtMatmulDescCreate,
                           .description_destroy = &cublasLtMatmulDescDestroy,
                           .description_set = &cublasLtMatmulDescSetAttribute,
                           .layout_create = &cublasLtMatrixLayoutCreate,
                           .layout_destroy = &cublasLtMatrixLayoutDestroy,
                           .preference_create = &cublasLtMatmulPreferenceCreate,
                           .preference_destroy = &cublasLtMatmulPreferenceDestroy,
                           .preference_set = &cublasLtMatmulPreferenceSetAttribute,
                           .get_heuristic = &cublasLtMatmulAlgoGetHeuristic,
                           .matmul = &cublasLtMatmul};

struct Library {
  DeviceArray<std::byte> workspace{kWorkspace};
  std::unique_ptr<LtGemm> gemm;
  Library() {
    auto made = LtGemm::Create(kLinked, workspace.data(), kWorkspace);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) gemm = *std::move(made);
  }
  std::vector<std::vector<float>> Compute(const Problem& p, size_t scratch = kScratch) {
    return RunProblem(p, 0, p.m, scratch, [&](const GemmArgs& args) {
      const absl::Status done = gemm->Multiply(args, nullptr);
      EXPECT_TRUE(done.ok()) << done;
    });
  }
};

class LtGemmShapes : public testing::TestWithParam<Problem> {};

TEST_P(LtGemmShapes, AgreesWithTheDefinition) {
  const Problem& p = GetParam();
  Library lt;
  const auto got = lt.Compute(p);
  ExpectAll(p, got);
  EXPECT_EQ(lt.gemm->products(), int64_t(p.n.size())) << "the library computed them";
  EXPECT_EQ(lt.gemm->refused(), 0);
  // Where sums need room, a little gives as many rows at a time as it has.
  size_t columns = 0;
  for (const int n : p.n) columns += size_t(n);
  const auto chunked = lt.Compute(p, 2 * columns * sizeof(float));
  ExpectAll(p, chunked);
  // None: then our own.
  ExpectAll(p, lt.Compute(p, 0));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LtGemmShapes,
    testing::Values(Problem(1, 64, {1}, GemmOutput::kF32), Problem(3, 128, {70}, GemmOutput::kBf16, true),
                    Problem(17, 64, {64, 20, 33}, GemmOutput::kBf16),
                    Problem(17, 64, {64, 20, 33}, GemmOutput::kBf16, true), Problem(65, 192, {33}, GemmOutput::kAdd),
                    Problem(70, 64, {30, 30}, GemmOutput::kGatedSilu),
                    Problem(5, 64, {130, 130}, GemmOutput::kGatedGelu), Problem(66, 2176, {9}, GemmOutput::kF32, true),
                    Problem(130, 64, {129}, GemmOutput::kF32)),
    [](const auto& shape) {
      return "Rows" + std::to_string(shape.param.m) + "Depth" + std::to_string(shape.param.k) + "Parts" +
             std::to_string(shape.param.n.size()) + "Output" + std::to_string(int(shape.param.output)) +
             (shape.param.bias ? "Bias" : "");
    });

TEST(LtGemm, AsksOnceForAShape) {
  const Problem p(17, 64, {64, 20, 20}, GemmOutput::kBf16), other(18, 64, {64, 20, 20}, GemmOutput::kBf16);
  Library lt;
  lt.Compute(p);
  const int64_t first = lt.gemm->searches();
  EXPECT_LE(first, 3);
  lt.Compute(p);
  lt.Compute(p);
  EXPECT_EQ(lt.gemm->searches(), first);
  EXPECT_EQ(lt.gemm->products(), 9);
  lt.Compute(other);
  EXPECT_GT(lt.gemm->searches(), first) << "other rows are another shape";
}

// A product is recorded, and the recorded one computes with what lies in the matrices then.
TEST(LtGemm, IsPartOfAGraph) {
  const Problem p(17, 64, {64}, GemmOutput::kAdd);
  Library lt;
  const auto got = RunProblem(p, 0, p.m, kScratch, [&](const GemmArgs& args) {
    cudaStream_t stream = nullptr;
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_TRUE(lt.gemm->Multiply(args, stream).ok());
    cudaGraph_t graph = nullptr;
    Check(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec = nullptr;
    Check(cudaGraphInstantiate(&exec, graph, 0));
    Check(cudaDeviceSynchronize());  // inputs have arrived
    Check(cudaGraphLaunch(exec, stream));
    Check(cudaStreamSynchronize(stream));
    Check(cudaGraphExecDestroy(exec));
    Check(cudaGraphDestroy(graph));
    Check(cudaStreamDestroy(stream));
  });
  ExpectAll(p, got);
}

TEST(LtGemm, RefusesWhatItCannotDo) {
  Library lt;
  GemmArgs args{.a_stride = 64, .m = 1, .k = 64};
  EXPECT_EQ(lt.gemm->Multiply(args, nullptr).code(), absl::StatusCode::kInvalidArgument) << "no columns";
  args.parts[0].n = 8;
  args.k = 100;
  EXPECT_EQ(lt.gemm->Multiply(args, nullptr).code(), absl::StatusCode::kInvalidArgument);
  args.k = 64;
  args.m = 0;
  EXPECT_TRUE(lt.gemm->Multiply(args, nullptr).ok());
}

// With failures on purpose from here to the end of the scope.
class Failing {
 public:
  explicit Failing(const char* plan) {
    setenv("HOST_CUDA_FAIL", plan, 1);
    setenv("HOST_CUDA_ON_ERROR", "report", 1);
    host_cuda::Restart();
  }
  ~Failing() {
    unsetenv("HOST_CUDA_FAIL");
    unsetenv("HOST_CUDA_ON_ERROR");
    host_cuda::Restart();
  }
};

TEST(LtGemm, AFailedProductIsAnErrorThatNamesIt) {
  const Failing failing("cublasLtMatmul:1+=CUBLAS_STATUS_EXECUTION_FAILED");
  Library lt;
  const Problem p(17, 64, {64}, GemmOutput::kF32);
  RunProblem(p, 0, p.m, kScratch, [&](const GemmArgs& args) {
    const absl::Status failed = lt.gemm->Multiply(args, nullptr);
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(failed.message()), testing::HasSubstr("cuBLASLt's product: "));
  });
}

TEST(LtGemm, WhatTheLibraryHasNothingForIsOurs) {
  const Failing failing("cublasLtMatmulAlgoGetHeuristic:1+=CUBLAS_STATUS_NOT_SUPPORTED");
  Library lt;
  const Problem p(17, 64, {64, 20}, GemmOutput::kBf16);
  ExpectAll(p, lt.Compute(p));
  EXPECT_EQ(lt.gemm->products(), 0);
  EXPECT_GT(lt.gemm->refused(), 0);
}

TEST(LtGemm, AHeuristicThatFailsIsAnError) {
  const Failing failing("cublasLtMatmulAlgoGetHeuristic:1+=CUBLAS_STATUS_INTERNAL_ERROR");
  Library lt;
  const Problem p(17, 64, {64}, GemmOutput::kBf16);
  RunProblem(p, 0, p.m, kScratch, [&](const GemmArgs& args) {
    EXPECT_THAT(std::string(lt.gemm->Multiply(args, nullptr).message()), testing::HasSubstr("cuBLASLt's heuristic: "));
  });
}

TEST(LtGemm, ALibraryThatDoesNotStartIsAnError) {
  const Failing failing("cublasLtCreate:1+=CUBLAS_STATUS_NOT_INITIALIZED");
  EXPECT_THAT(std::string(LtGemm::Create(kLinked, nullptr, 0).status().message()),
              testing::HasSubstr("starting cuBLASLt: "));
}

TEST(LtLibrary, WhatIsMissingIsNamed) {
  EXPECT_THAT(std::string(LtLibrary::Load("/nowhere/libcublasLt.so").status().message()),
              testing::AllOf(testing::HasSubstr("cuBLASLt cannot be loaded (/nowhere/libcublasLt.so"),
                             testing::HasSubstr("--cublaslt-library")));
  EXPECT_THAT(std::string(LtLibrary::Load("libc.so.6").status().message()),
              testing::HasSubstr("libc.so.6 has no cublasLtGetVersion: it is no cuBLASLt"));
}

}  // namespace
}  // namespace sluice::kernels::cuda
