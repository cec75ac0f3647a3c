// A number for all that a core has said: equal runs have equal ones.
#pragma once

#include <cstdint>
#include <string>

#include "router/events.h"

namespace sluice::simulation {

namespace pb = ::sluice::v1;

class Digest {
 public:
  void Add(const router::Action& action, absl::Time now);
  uint64_t value() const { return value_; }

 private:
  void Add(uint64_t number);
  void Add(const std::string& text);
  void Add(const pb::RouterMessage& message);

  uint64_t value_ = 0;
};

std::string Describe(const router::Action& action);  // one line, for people
std::string Describe(const router::Event& event);

}  // namespace sluice::simulation
