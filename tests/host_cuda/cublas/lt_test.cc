// cublasLtMatmul against a naive product in double, over random shapes, types, orders, transposes, strides, batches and
// epilogues; what its heuristic offers and what is refused.
#include <cublasLt.h>

#include "tests/host_cuda/cublas/testing/matrices.h"

namespace host_cuda::blas {
namespace {

using testing::Contains;
using testing::HasSubstr;

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

cublasLtMatrixLayout_t LayoutOf(const Stored& s) {
  cublasLtMatrixLayout_t layout = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, s.type, static_cast<uint64_t>(s.rows), static_cast<uint64_t>(s.columns),
                                       s.ld),
            0);
  const int32_t order = s.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL, batches = s.batches;
  const int64_t stride = static_cast<int64_t>(s.stride);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order), 0);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches), 0);
  EXPECT_EQ(
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride), 0);
  return layout;
}

// One product with its descriptors. D is C's shape and type.
struct MatmulOf {
  cublasLtMatmulDesc_t about = nullptr;
  cublasLtMatrixLayout_t a, b, c, d;

  MatmulOf(const Stored& sa, bool ta, const Stored& sb, bool tb, const Stored& sc, const Stored& sd,
           cublasComputeType_t compute = CUBLAS_COMPUTE_32F, cudaDataType scale = CUDA_R_32F)
      : a(LayoutOf(sa)), b(LayoutOf(sb)), c(LayoutOf(sc)), d(LayoutOf(sd)) {
    EXPECT_EQ(cublasLtMatmulDescCreate(&about, compute, scale), 0);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{ta ? CUBLAS_OP_T : CUBLAS_OP_N});
    Set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{tb ? CUBLAS_OP_T : CUBLAS_OP_N});
  }
  ~MatmulOf() {
    for (cublasLtMatrixLayout_t layout : {a, b, c, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(about);
  }
  MatmulOf(const MatmulOf&) = delete;
  MatmulOf& operator=(const MatmulOf&) = delete;

  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(about, attribute, &value, sizeof value), 0);
  }
};

class LtTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      Prefer(attribute, uint32_t{1});
    }
    stream_ = Stream();
  }
  void TearDown() override {
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtDestroy(handle_);
    GemmTest::TearDown();
  }

  template <class T>
  void Prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value), 0);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> Heuristic(const MatmulOf& p, int requested = 4) {
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(requested));
    int found = 0;
    last_ = cublasLtMatmulAlgoGetHeuristic(handle_, p.about, p.a, p.b, p.c, p.d, preference_, requested, results.data(),
                                           &found);
    results.resize(static_cast<size_t>(found));
    return results;
  }

  template <class Scalar>
  cublasStatus_t Multiply(const MatmulOf& p, Scalar alpha, const Stored& a, const Stored& b, Scalar beta,
                          const Stored& c, const Stored& d, const cublasLtMatmulAlgo_t* algo = nullptr,
                          void* workspace = nullptr, size_t bytes = 0) {
    const cublasStatus_t status = cublasLtMatmul(handle_, p.about, &alpha, a.device, p.a, b.device, p.b, &beta,
                                                 c.device, p.c, d.device, p.d, algo, workspace, bytes, stream_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return status;
  }

  // An m x k by k x n product of one type, column-major, for tests whose matter is another.
  struct Plain {
    Stored a, b, c;
  };
  Plain MakePlain(cudaDataType type, int m, int n, int k) {
    return {Make(type, m, k, false, 1), Make(type, k, n, false, 1), Make(type, m, n, false, 1)};
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cublasStatus_t last_ = CUBLAS_STATUS_SUCCESS;
};

TEST_F(LtTest, AgainstTheNaiveProduct) {
  constexpr std::pair<uint32_t, const char*> kEpilogues[] = {
      {CUBLASLT_EPILOGUE_DEFAULT, "none"}, {CUBLASLT_EPILOGUE_BIAS, "bias"},
      {CUBLASLT_EPILOGUE_RELU, "relu"},    {CUBLASLT_EPILOGUE_RELU_BIAS, "relu, bias"},
      {CUBLASLT_EPILOGUE_GELU, "gelu"},    {CUBLASLT_EPILOGUE_GELU_BIAS, "gelu, bias"},
  };
  for (int round = 0; round < 90; ++round) {
    const auto [epilogue, name] = kEpilogues[round % 6];
    SCOPED_TRACE("round " + std::to_string(round) + ", epilogue " + name);
    const int m = 1 + Below(round % 10 == 0 ? 600 : 40), n = 1 + Below(40), k = 1 + Below(70), batches = 1 + Below(3);
    const cudaDataType types[] = {CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF};
    const cudaDataType in = types[Below(3)], out = Coin() ? in : CUDA_R_32F;
    const bool ta = Coin(), tb = Coin();
    const Stored a = ta ? Make(in, k, m, Coin(), batches) : Make(in, m, k, Coin(), batches);
    const Stored b = tb ? Make(in, n, k, Coin(), batches) : Make(in, k, n, Coin(), batches);
    const Stored c = Make(out, m, n, Coin(), batches), d = Make(out, m, n, Coin(), batches);
    const Stored bias = Make(out, m, 1, false, 1);
    const float alpha = 0.5f, beta = Coin() ? 0.f : 2.f;
    MatmulOf p(a, ta, b, tb, c, d);
    p.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    p.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.device);
    const auto found = Heuristic(p);
    ASSERT_EQ(found.size(), 1u);
    ASSERT_EQ(Multiply(p, alpha, a, b, beta, c, d, Coin() ? &found[0].algo : nullptr), CUBLAS_STATUS_SUCCESS);
    ExpectOnly(
        d,
        [&, chosen = epilogue](int batch, int i, int j) {
          double value = alpha * Product(a, ta, b, tb, batch, i, j) + (beta != 0 ? beta * c(batch, i, j) : 0);
          if ((chosen & CUBLASLT_EPILOGUE_BIAS) != 0) value += bias(0, i, 0);
          if ((chosen & CUBLASLT_EPILOGUE_RELU) != 0) value = std::max(value, 0.0);
          return (chosen & CUBLASLT_EPILOGUE_GELU) != 0 ? Gelu(value) : value;
        },
        1);
    for (const Stored* s : {&a, &b, &c, &d, &bias}) cudaFree(s->device);
  }
}

TEST_F(LtTest, Fp8WithScalesOfTheDevice) {
  for (const cudaDataType out : {CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F}) {
    const int m = 48, n = 7, k = 64;
    const Stored a = Make(CUDA_R_8F_E4M3, k, m, false, 2, 16), b = Make(CUDA_R_8F_E4M3, k, n, false, 2, 16);
    const Stored c = Make(out, m, n, false, 2), d = Make(out, m, n, false, 2);
    float* scales = Device<float>(2);
    MatmulOf p(a, true, b, false, c, d);
    p.Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(scales));
    p.Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(scales + 1));
    p.Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    const float values[] = {0.25f, 2.f};
    ASSERT_EQ(cudaMemcpyAsync(scales, values, sizeof values, cudaMemcpyHostToDevice, stream_), cudaSuccess);
    ASSERT_EQ(Multiply(p, 1.f, a, b, 0.f, c, d), CUBLAS_STATUS_SUCCESS);
    ExpectOnly(
        d, [&](int batch, int i, int j) { return 0.5 * Product(a, true, b, false, batch, i, j); }, 1);
    // As tensor cores have it.
    const Stored short_k = Make(CUDA_R_8F_E4M3, 24, m, false, 2, 16),
                 short_b = Make(CUDA_R_8F_E4M3, 24, n, false, 2, 16);
    MatmulOf odd(short_k, true, short_b, false, c, d);
    EXPECT_EQ(Multiply(odd, 1.f, short_k, short_b, 0.f, c, d), CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_THAT(TakeReports(), Contains(HasSubstr("no multiples of 16")));
  }
}

TEST_F(LtTest, Int8ToInt32IsExact) {
  for (int round = 0; round < 10; ++round) {
    const int m = 4 * (1 + Below(20)), n = 1 + Below(20), k = 4 * (1 + Below(100)), batches = 1 + Below(2);
    const Stored a = Make(CUDA_R_8I, k, m, false, batches, 4), b = Make(CUDA_R_8I, k, n, false, batches, 4);
    const Stored c = Make(CUDA_R_32I, m, n, false, batches), d = Make(CUDA_R_32I, m, n, false, batches);
    MatmulOf p(a, true, b, false, c, d, CUBLAS_COMPUTE_32I, CUDA_R_32I);
    const int32_t beta = round % 2;
    ASSERT_EQ(Multiply(p, int32_t{1}, a, b, beta, c, d), CUBLAS_STATUS_SUCCESS);
    ExpectOnly(
        d, [&](int batch, int i, int j) { return Product(a, true, b, false, batch, i, j) + beta * c(batch, i, j); }, 0);
  }
  const Plain s = MakePlain(CUDA_R_8I, 4, 4, 4);
  const Stored c = Make(CUDA_R_32I, 4, 4, false, 1);
  MatmulOf p(s.a, false, s.b, false, c, c, CUBLAS_COMPUTE_32I, CUDA_R_32I);
  EXPECT_EQ(Multiply(p, 1, s.a, s.b, 0, c, c), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("8-bit inputs but not A^T B")));
}

TEST_F(LtTest, ScalarsOfTheDeviceAreReadWhenTheProductRuns) {
  const Plain s = MakePlain(CUDA_R_32F, 8, 8, 8);
  float* scalars = Device<float>(2);
  MatmulOf p(s.a, false, s.b, false, s.c, s.c);
  p.Set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
  const float values[] = {2.f, 0.f};
  cudaMemcpyAsync(scalars, values, sizeof values, cudaMemcpyHostToDevice, stream_);
  ASSERT_EQ(cublasLtMatmul(handle_, p.about, scalars, s.a.device, p.a, s.b.device, p.b, scalars + 1, s.c.device, p.c,
                           s.c.device, p.d, nullptr, nullptr, 0, stream_),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ExpectOnly(
      s.c, [&](int batch, int i, int j) { return 2 * Product(s.a, false, s.b, false, batch, i, j); }, 1);
}

TEST_F(LtTest, AnAlgorithmWithAWorkspaceNeedsAllOfIt) {
  const Plain s = MakePlain(CUDA_R_16BF, 32, 32, 32);
  MatmulOf p(s.a, false, s.b, false, s.c, s.c);
  ASSERT_EQ(Heuristic(p).size(), 1u);  // none is allowed
  Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1} << 20);
  EXPECT_EQ(Heuristic(p, 1).size(), 1u);
  const auto found = Heuristic(p);
  ASSERT_EQ(found.size(), 2u);
  ASSERT_GT(found[0].workspaceSize, 0u);
  EXPECT_EQ(found[1].workspaceSize, 0u);
  const size_t bytes = found[0].workspaceSize;
  char* workspace = Device<char>(bytes);
  cudaMemset(workspace, 0, bytes);
  cudaDeviceSynchronize();
  EXPECT_EQ(Multiply(p, 1.f, s.a, s.b, 0.f, s.c, s.c, &found[0].algo, workspace, bytes - 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("bytes of workspace")));
  EXPECT_EQ(Multiply(p, 1.f, s.a, s.b, 0.f, s.c, s.c, &found[0].algo, workspace, bytes), CUBLAS_STATUS_SUCCESS);
  ExpectOnly(
      s.c, [&](int batch, int i, int j) { return Product(s.a, false, s.b, false, batch, i, j); }, 1);
  EXPECT_EQ(workspace[bytes - 1], '\xff');  // whoever else keeps something there loses it
  // One that is smaller than it was said to be.
  char* small = Device<char>(bytes / 2);
  float one = 1, zero = 0;
  ASSERT_EQ(cublasLtMatmul(handle_, p.about, &one, s.a.device, p.a, s.b.device, p.b, &zero, s.c.device, p.c, s.c.device,
                           p.d, &found[0].algo, small, bytes, stream_),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cublasLtMatmul uses what it must not: workspace: ")));
}

TEST_F(LtTest, AnAlgorithmBelongsToItsProblem) {
  const Plain s = MakePlain(CUDA_R_16BF, 32, 32, 32), t = MakePlain(CUDA_R_16BF, 32, 16, 32);
  MatmulOf p(s.a, false, s.b, false, s.c, s.c), other(t.a, false, t.b, false, t.c, t.c);
  const auto found = Heuristic(p);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(Multiply(other, 1.f, t.a, t.b, 0.f, t.c, t.c, &found[0].algo), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("the algorithm was found for another problem")));
  cublasLtMatmulAlgo_t made_up = {};
  EXPECT_EQ(Multiply(p, 1.f, s.a, s.b, 0.f, s.c, s.c, &made_up), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("not of cublasLtMatmulAlgoGetHeuristic")));
  cublasLtMatmulHeuristicResult_t checked;
  EXPECT_EQ(cublasLtMatmulAlgoCheck(handle_, p.about, p.a, p.b, p.c, p.d, &found[0].algo, &checked),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulAlgoCheck(handle_, other.about, other.a, other.b, other.c, other.d, &found[0].algo, &checked),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(LtTest, ThePreferencesAlignmentsArePromises) {
  const Plain s = MakePlain(CUDA_R_32F, 8, 8, 8);
  MatmulOf p(s.a, false, s.b, false, s.c, s.c);
  Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{16});
  const auto found = Heuristic(p);
  Stored shifted = s.b;
  shifted.device = static_cast<float*>(shifted.device) + 1;
  EXPECT_EQ(Multiply(p, 1.f, s.a, shifted, 0.f, s.c, s.c, &found[0].algo), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("matrix B is not aligned to the 16 bytes")));
}

TEST_F(LtTest, WhatIsNotHereIsNamed) {
  const Plain s = MakePlain(CUDA_R_16BF, 8, 8, 8);
  MatmulOf p(s.a, false, s.b, false, s.c, s.c);
  p.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_GELU_AUX});
  EXPECT_TRUE(Heuristic(p).empty());
  EXPECT_EQ(last_, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(Multiply(p, 1.f, s.a, s.b, 0.f, s.c, s.c), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cublasLtMatmul: epilogue 160 (not here)")));
  const int64_t ld = 8;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(p.about, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cublasLtMatmulDescSetAttribute: attribute 12 is not in")));
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(p.about, CUBLASLT_MATMUL_DESC_EPILOGUE, &ld, sizeof ld),
            CUBLAS_STATUS_INVALID_VALUE);  // of another size
  MatmulOf scaled(s.a, false, s.b, false, s.c, s.c);
  scaled.Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(s.a.device));
  EXPECT_EQ(Multiply(scaled, 1.f, s.a, s.b, 0.f, s.c, s.c), CUBLAS_STATUS_NOT_SUPPORTED);
  MatmulOf biased(s.a, false, s.b, false, s.c, s.c);
  biased.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(Heuristic(biased).size(), 1u);  // the pointer may come later
  EXPECT_EQ(Multiply(biased, 1.f, s.a, s.b, 0.f, s.c, s.c), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(LtTest, AttributesComeBack) {
  cublasLtMatmulDesc_t about = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&about, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
  uint32_t epilogue = 0;
  size_t written = 0;
  ASSERT_EQ(cublasLtMatmulDescGetAttribute(about, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, &written),
            0);
  EXPECT_EQ(epilogue, uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  EXPECT_EQ(written, 4u);
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(about, CUBLASLT_MATMUL_DESC_EPILOGUE, nullptr, 0, &written), 0);
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(about, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 2, &written),
            CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulDescDestroy(about);
  uint32_t alignment = 0;
  cublasLtMatmulPreference_t fresh = nullptr;
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&fresh), 0);
  ASSERT_EQ(cublasLtMatmulPreferenceGetAttribute(fresh, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment,
                                                 sizeof alignment, nullptr),
            0);
  EXPECT_EQ(alignment, 256u);
  cublasLtMatmulPreferenceDestroy(fresh);
  size_t capacity = 0;
  ASSERT_EQ(cublasLtHeuristicsCacheSetCapacity(100), 0);
  ASSERT_EQ(cublasLtHeuristicsCacheGetCapacity(&capacity), 0);
  EXPECT_EQ(capacity, 100u);
  EXPECT_STREQ(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED), "the library was not initialized");
}

}  // namespace
}  // namespace host_cuda::blas
