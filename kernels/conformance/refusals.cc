// What a backend cannot hold is refused with an error that says why.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

void WhatItCannotHold(const Subject& subject) {
  Backends backends(subject);
  const Backend& backend = backends.first();
  std::mt19937 rng(kSeed);
  const Matrix m = RandomMatrix(DType::kQ4_1, 2, 64, rng);
  HostTensor ragged = m.tensor();
  ragged.cols = 40;
  EXPECT_EQ(backend.PackLinear(ragged).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend.PackTable(HostTensor{}).status().code(), absl::StatusCode::kInvalidArgument);
  const KvLayout layout{1000, 1000, 1000, 1000, backend.kv_dtype()};
  const auto pool = backend.NewKvPool(layout, 1000);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()), testing::HasSubstr("bytes"));
  EXPECT_FALSE(backend.NewContext({}).ok());
}

}  // namespace

std::vector<Check> RefusalChecks() {
  return {{"Refuses", "WhatItCannotHold", WhatItCannotHold}};
}

}  // namespace sluice::kernels::conformance
