#include "engine/files/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "engine/files/concat.h"

namespace sluice::engine {
namespace {

// Names under which models have an end of turn that their eos key doesn't say.
constexpr std::array<std::string_view, 8> kEndNames = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "</s>"};

absl::Status Invalid(const Gguf& file, std::string_view message) {
  return absl::InvalidArgumentError(Concat(file.source(), ": ", message));
}

// `out` keeps its value if the key is missing.
template <typename T>
absl::Status TakeOptional(absl::StatusOr<T> value, T* out) {
  if (absl::IsNotFound(value.status())) return absl::OkStatus();
  if (value.ok()) *out = *std::move(value);
  return value.status();
}

absl::Status ReadTypes(const Gguf& file, TokenizerData* data) {
  data->types.assign(data->tokens.size(), TokenType::kNormal);
  std::vector<int64_t> types(data->tokens.size(), int64_t(TokenType::kNormal));
  if (absl::Status s = TakeOptional(file.GetInts("tokenizer.ggml.token_type"), &types); !s.ok()) return s;
  if (types.size() != data->tokens.size()) {
    return Invalid(file, Concat("key \"tokenizer.ggml.token_type\" has ", types.size(), " entries for ",
                                data->tokens.size(), " tokens"));
  }
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < int64_t(TokenType::kNormal) || types[id] > int64_t(TokenType::kByte)) {
      return Invalid(file,
                     Concat("key \"tokenizer.ggml.token_type\" gives token ", id, " the unknown type ", types[id]));
    }
    data->types[id] = TokenType(types[id]);
  }
  return absl::OkStatus();
}

absl::Status ReadId(const Gguf& file, std::string_view name, const TokenizerData& data, int32_t* out) {
  const std::string key = Concat("tokenizer.ggml.", name);
  int64_t id = *out;
  if (absl::Status s = TakeOptional(file.GetInt(key, 0, int64_t(data.tokens.size()) - 1), &id); !s.ok()) return s;
  *out = int32_t(id);
  return absl::OkStatus();
}

absl::Status ReadIds(const Gguf& file, TokenizerData* data) {
  int32_t eot = -1, eom = -1;
  for (auto [name, out] : {std::pair{"bos_token_id", &data->bos_id},
                           {"eos_token_id", &data->eos_id},
                           {"eot_token_id", &eot},
                           {"eom_token_id", &eom}}) {
    if (absl::Status s = ReadId(file, name, *data, out); !s.ok()) return s;
  }
  for (int32_t id : {data->eos_id, eot, eom}) {
    if (id >= 0) data->eog_ids.push_back(id);
  }
  for (size_t id = 0; id < data->tokens.size(); ++id) {
    if (data->types[id] != TokenType::kControl) continue;
    if (std::find(kEndNames.begin(), kEndNames.end(), data->tokens[id]) != kEndNames.end()) {
      data->eog_ids.push_back(int32_t(id));
    }
  }
  std::sort(data->eog_ids.begin(), data->eog_ids.end());
  data->eog_ids.erase(std::unique(data->eog_ids.begin(), data->eog_ids.end()), data->eog_ids.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerData> ReadTokenizer(const Gguf& file, int vocab) {
  TokenizerData data;
  absl::StatusOr<std::string> model = file.GetString("tokenizer.ggml.model");
  if (!model.ok()) return model.status();
  data.model = *std::move(model);
  absl::StatusOr<std::vector<std::string>> tokens = file.GetStrings("tokenizer.ggml.tokens");
  if (!tokens.ok()) return tokens.status();
  data.tokens = *std::move(tokens);
  if (data.tokens.empty() || data.tokens.size() > size_t(vocab)) {
    return Invalid(
        file, Concat("key \"tokenizer.ggml.tokens\" has ", data.tokens.size(), " tokens, the embedding table ", vocab));
  }
  absl::Status s = TakeOptional(file.GetString("tokenizer.ggml.pre"), &data.pre_tokenizer);
  if (s.ok()) s = TakeOptional(file.GetStrings("tokenizer.ggml.merges"), &data.merges);
  if (s.ok()) s = TakeOptional(file.GetBool("tokenizer.ggml.add_bos_token"), &data.add_bos);
  if (s.ok()) s = TakeOptional(file.GetBool("tokenizer.ggml.add_eos_token"), &data.add_eos);
  if (s.ok()) s = TakeOptional(file.GetString("tokenizer.chat_template"), &data.chat_template);
  if (s.ok()) s = ReadTypes(file, &data);
  if (s.ok()) s = ReadIds(file, &data);
  if (!s.ok()) return s;
  return data;
}

}  // namespace sluice::engine
