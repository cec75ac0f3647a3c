#include "engine/text/detokenizer.h"

#include <utility>

#include "engine/text/utf8.h"

namespace sluice::engine {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool skip_control)
    : tokenizer_(tokenizer), skip_control_(skip_control) {}

std::string Detokenizer::Add(int32_t id) {
  if (skip_control_ && tokenizer_->IsControl(id)) return {};
  const std::string bytes = std::exchange(pending_, {}).append(tokenizer_->TokenBytes(id));
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t valid = ValidPrefix(rest);
    text.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Kind::kIncomplete) {
      pending_ = rest;
      break;
    }
    text.append(kReplacementCharacter);
    rest.remove_prefix(step.length);
  }
  return text;
}

std::string Detokenizer::Flush() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace sluice::engine
