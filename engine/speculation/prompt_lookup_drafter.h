// Prompt lookup as a sequence's drafter.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/speculation/prompt_lookup.h"

namespace sluice::engine {

class PromptLookupDrafter final : public Drafter {
 public:
  explicit PromptLookupDrafter(const PromptLookupOptions& options) : lookup_(options) {}

  bool active(int position) const override { return lookup_.length().Next(position) > 0; }
  std::vector<int32_t> Propose(std::span<const int32_t> tokens, int limit) override {
    return lookup_.Draft(tokens, limit);
  }
  void Report(int position, int drafted, int accepted) override { lookup_.Report(position, drafted, accepted); }
  void set_row_cost(double row_cost) override { lookup_.length().set_row_cost(row_cost); }

 private:
  PromptLookup lookup_;
};

}  // namespace sluice::engine
