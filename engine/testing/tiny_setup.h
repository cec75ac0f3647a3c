// A tiny random model and a CPU backend for tests of what is built on them.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/files/model_file.h"
#include "engine/files/testing/tiny_model.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::engine {

struct TinySetup {
  std::unique_ptr<ModelFile> file;
  std::unique_ptr<kernels::Backend> backend;
};

// SLUICE_TEST_COMPUTE=int8 (or native, bf16) runs a test in that mode instead of the reference; SLUICE_TEST_KV8 keeps
// K and V in int8.
inline kernels::CpuCompute TestCompute() {
  const char* name = std::getenv("SLUICE_TEST_COMPUTE");
  return kernels::CpuComputeFromName(name != nullptr ? name : "f32").value_or(kernels::CpuCompute::kF32);
}

// The file is unlinked at once: the mapping keeps it. Null members (and a failure) where something went wrong.
inline TinySetup MakeTinySetup(const TinyModelSpec& spec, int threads = 1) {
  static int made = 0;
  const std::string path = absl::StrCat(testing::TempDir(), "/tiny-", getpid(), "-", made++, ".gguf");
  TinySetup setup;
  const absl::Status written = WriteTinyModel(path, spec);
  EXPECT_TRUE(written.ok()) << written;
  auto file = OpenModel(path);
  unlink(path.c_str());
  EXPECT_TRUE(file.ok()) << file.status();
  if (file.ok()) setup.file = *std::move(file);
  kernels::CpuOptions options{.threads = threads, .compute = TestCompute()};
  if (std::getenv("SLUICE_TEST_KV8") != nullptr) options.kv = kernels::KvDType::kInt8;
  auto backend = kernels::NewCpuBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  if (backend.ok()) setup.backend = *std::move(backend);
  return setup;
}

inline std::vector<int32_t> RandomTokens(int count, int vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = int32_t(random() % uint64_t(vocab));
  return tokens;
}

}  // namespace sluice::engine
