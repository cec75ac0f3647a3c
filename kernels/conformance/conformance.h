// The suite that every backend passes unchanged: the promises of kernels/backend.h as tests.
//
// A backend's test is one file that says what to test, and links sluice_kernels_conformance:
//
//   const bool registered = RegisterConformance({{.name = "scalar", .variants = {...}}, ...});
//
// Each mode of arithmetic (numerics id) is a subject of its own: within one, everything is equal to the bit, unless the
// subject says that its rows depend on the batch (batch_error). How far a mode may be from exact arithmetic it says
// itself, except for f32, whose bound is derived (near_reference.cc).
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace sluice::kernels::conformance {

// One way to make a backend.
struct Variant {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make;
};

// What the suite runs on. All of its variants (thread counts, instruction sets) must give the same bits; the first one
// is what the others are compared with.
struct Subject {
  std::string name;         // letters and digits
  std::string numerics_id;  // what Backend::numerics_id must say
  std::vector<Variant> variants;
  // Of the logits against the naive reference, as a share of theirs, for modes that round weights or activations; 0:
  // f32, held to a derived bound on every single logit.
  double rms_error = 0;
  // Of the logits of a row against those of the same row in another step, likewise. 0: equal to the bit, as everything
  // is that promises the same tokens. More than 0, for a library that chooses by the shape of a step: the checks that
  // compare steps of different rows then compare logits within this, and no bytes of K and V; those that compare the
  // same steps still ask for equal bits.
  double batch_error = 0;
  // Between host memory and KvPool::layer_data; these are for pools in host memory.
  std::function<void(void* host, const void* pool, size_t bytes)> read = std::memcpy;
  std::function<void(void* pool, const void* host, size_t bytes)> write = std::memcpy;
};

// Registers every check for every subject with GoogleTest, as Suite.Check/subject. Call it before main. Returns true.
bool RegisterConformance(std::vector<Subject> subjects);

}  // namespace sluice::kernels::conformance
