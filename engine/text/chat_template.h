#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/text/tokenizer.h"
namespace sluice::engine {
enum class ToolCallStyle : uint8_t { kNone, kHermes, kLlama, kMistral };
struct ChatInput {
  std::string_view messages, tools, template_arguments;
  bool add_generation_prompt = true, continue_final_message = false;
  absl::Time now;
};
class ChatTemplate {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(const ChatInput&, const Tokenizer&) const { return absl::UnimplementedError("x"); }
  ToolCallStyle tool_call_style() const { return ToolCallStyle::kNone; }
};
}
