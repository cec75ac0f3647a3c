// The suite that every backend passes unchanged: the promises of kernels/backend.h as tests.
//
// A backend's test links conformance_test.cc, the files beside it, and one definition of ConformanceCases().
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace sluice::kernels::conformance {

// One way to make a backend. All variants of a case must give the same bits.
struct Variant {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make;
};

struct Case {
  std::string name;               // letters and digits
  std::vector<Variant> variants;  // the first is the one that most tests run on
  bool host_memory = false;       // KvPool::layer_data may be read and written from here
  double rms_error = 0;           // of the logits against the reference, as a share of theirs, for modes that round
                                  // weights or activations; 0: f32, held to a derived bound on every single logit
};

// How GoogleTest prints a case.
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> ConformanceCases();

}  // namespace sluice::kernels::conformance
