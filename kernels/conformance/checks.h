// Inside of the suite: what the files of checks share. A check reports by GoogleTest's EXPECTs.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/conformance/conformance.h"
#include "kernels/conformance/tiny_model.h"

namespace sluice::kernels::conformance {

struct Check {
  const char* suite;
  const char* name;
  void (*run)(const Subject&);
};

// One function a file.
std::vector<Check> BatchInvarianceChecks();
std::vector<Check> VerificationRowChecks();
std::vector<Check> SharedBlockChecks();
std::vector<Check> BlockTableChecks();
std::vector<Check> HeadRowChecks();
std::vector<Check> VariantChecks();
std::vector<Check> NearReferenceChecks();
std::vector<Check> RefusalChecks();
std::vector<Check> AllChecks();

inline constexpr uint32_t kSeed = 20240607;

// The subject's variants, made once. Steps of many rows take them in turn, so that all are met; checks of many small
// steps stay with the first, since threads that wait for each other at every phase are slow on a busy machine.
class Backends {
 public:
  explicit Backends(const Subject& subject);
  const Backend& first() const { return *made_[0]; }
  const Backend& next() { return *made_[next_++ % made_.size()]; }

 private:
  std::vector<std::unique_ptr<Backend>> made_;
  size_t next_ = 0;
};

std::vector<int32_t> RandomTokens(int count, int vocab, std::mt19937& rng);
// Sequences that end just before, at and after borders of blocks and key tiles.
std::vector<std::vector<int32_t>> BorderTokens(int vocab);

// Small enough for many runs, and odd where a kernel could have a fast path: all heads share K and V; nothing is a
// multiple of a vector; plain.
std::vector<TinyShape> Shapes();

// What every other way to compute these sequences must give: each alone, token by token.
struct Expected {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Logits> logits;
  std::vector<std::vector<uint8_t>> kv;
};
Expected DecodeAlone(const Subject& subject, const Backend& backend, const TinyWeights& weights,
                     std::vector<std::vector<int32_t>> tokens);

// Equal bits of all logits that were taken, and of all full blocks; with Subject::batch_error, logits within it.
// Reports the first difference; false if there is one.
bool ExpectSame(const Subject& subject, const Expected& expected, TinyModel& model, const std::string& what);
bool ExpectSameLogits(const Subject& subject, const Logits& expected, const Logits& got, const std::string& what);

}  // namespace sluice::kernels::conformance
