#include "router/prompt_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/detokenizer.h"

namespace sluice::router {
namespace {

constexpr size_t kMostEscape = 6;                     // bytes of JSON for one of text
constexpr size_t kMessageOverhead = size_t{1} << 20;  // of a conversation's JSON beside its text

absl::Status Bad(const char* field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

// Not even the longest tokens could make it fit.
absl::Status CheckFits(const char* field, size_t bytes, const ServedModel& model, size_t factor, size_t overhead) {
  const size_t most = size_t(model.context_length) * size_t(std::max(1, model.longest_token));
  if (bytes <= most * factor + overhead) return absl::OkStatus();
  return Bad(field,
             absl::StrFormat("the prompt of %d bytes can't fit the context of %d tokens", bytes, model.context_length));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> TextTokens(const std::string& text, const ServedModel& model, bool add_special) {
  if (text.empty()) return Bad("text", "the prompt must not be empty");
  if (absl::Status fits = CheckFits("text", text.size(), model, 1, 0); !fits.ok()) return fits;
  return model.tokenizer->Encode(text, engine::SpecialText::kParse, add_special);
}

absl::StatusOr<std::vector<int32_t>> ChatTokens(const pb::ChatPrompt& chat, const ServedModel& model, absl::Time now) {
  if (model.chat_template == nullptr) return Bad("messages", model.no_chat_template);
  for (const auto& [field, json] : {std::pair("messages", &chat.messages()), std::pair("tools", &chat.tools()),
                                    std::pair("template_arguments", &chat.template_arguments())}) {
    if (absl::Status fits = CheckFits(field, json->size(), model, kMostEscape, kMessageOverhead); !fits.ok())
      return fits;
  }
  // Else the model would be told nothing of them, or answer in a way that nobody reads.
  if (!chat.tools().empty() && model.tool_call_style() == engine::ToolCallStyle::kNone) {
    return Bad("tools", "the model's chat template has no tool calls in a spelling that is known here");
  }
  engine::ChatInput input;
  input.messages = chat.messages();
  input.tools = chat.tools();
  input.add_generation_prompt =
      chat.has_add_generation_prompt() ? chat.add_generation_prompt() : !chat.continue_final_message();
  input.continue_final_message = chat.continue_final_message();
  input.template_arguments = chat.template_arguments();
  input.now = now;
  return engine::EncodeChat(*model.chat_template, *model.tokenizer, input);
}

absl::StatusOr<pb::TokenizeResponse> Tokenize(const pb::TokenizeRequest& request, const ServedModel& model,
                                              absl::Time now) {
  if (absl::Status known = CheckModel(request.model(), model); !known.ok()) return known;
  absl::StatusOr<std::vector<int32_t>> ids = Bad("prompt", "is missing; give text or chat");
  if (request.has_chat()) {
    ids = ChatTokens(request.chat(), model, now);
  } else if (request.has_text() && request.text().empty()) {
    ids.emplace();
  } else if (request.has_text()) {
    ids = TextTokens(request.text(), model, !request.has_add_special_tokens() || request.add_special_tokens());
  }
  if (!ids.ok()) return ids.status();
  pb::TokenizeResponse response;
  response.mutable_ids()->Add(ids->begin(), ids->end());
  for (const int32_t id : *ids) response.add_tokens(std::string(model.tokenizer->TokenBytes(id)));
  response.set_context_length(model.context_length);
  return response;
}

absl::StatusOr<pb::DetokenizeResponse> Detokenize(const pb::DetokenizeRequest& request, const ServedModel& model) {
  if (absl::Status known = CheckModel(request.model(), model); !known.ok()) return known;
  engine::Detokenizer detokenizer(model.tokenizer, /*skip_control=*/false);
  pb::DetokenizeResponse response;
  for (int i = 0; i < request.ids_size(); ++i) {
    const int32_t id = request.ids(i);
    if (id < 0 || id >= model.vocab) {
      return Bad("tokens", absl::StrFormat("ids must be in [0, %d), got %d at position %d", model.vocab, id, i));
    }
    response.mutable_text()->append(detokenizer.Add(id));
  }
  response.mutable_text()->append(detokenizer.Flush());
  return response;
}

}  // namespace sluice::router
