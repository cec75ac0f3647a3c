#include "engine/text/special_tokens.h"

namespace sluice::engine {
namespace {

uint64_t EdgeKey(uint32_t node, char c) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
}

}  // namespace

bool SpecialTokens::Add(std::string_view name, int32_t id) {
  begins_[static_cast<uint8_t>(name[0])] = true;
  uint32_t node = 0;
  for (const char c : name) {
    const auto [edge, is_new] = edges_.emplace(EdgeKey(node, c), num_nodes_);
    if (is_new) ++num_nodes_;
    node = edge->second;
  }
  return ids_.emplace(node, id).second;
}

std::optional<SpecialTokens::Match> SpecialTokens::Find(std::string_view text, size_t from) const {
  return Find(text, from, [](const Match&) { return true; });
}

std::optional<SpecialTokens::Match> SpecialTokens::Find(std::string_view text, size_t from,
                                                        absl::FunctionRef<bool(const Match&)> accept) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto edge = edges_.find(EdgeKey(node, text[at]));
      if (edge == edges_.end()) break;
      node = edge->second;
      const auto id = ids_.find(node);
      if (id == ids_.end()) continue;
      if (const Match match{begin, at + 1 - begin, id->second}; accept(match)) longest = match;
    }
    if (longest.has_value()) return longest;
  }
  return std::nullopt;
}

}  // namespace sluice::engine
