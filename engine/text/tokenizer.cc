#include "engine/text/tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/text/bpe.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/special_tokens.h"
#include "engine/text/utf8.h"

namespace sluice::engine {
namespace {

bool IsControlType(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

// "<0x0A>" -> "\n".
std::optional<std::string> BytesOfByteToken(const std::string& name) {
  uint32_t byte = 0;
  if (name.size() != 6 || !absl::StartsWith(name, "<0x") || !absl::EndsWith(name, ">") ||
      !absl::SimpleHexAtoi(name.substr(3, 2), &byte)) {
    return std::nullopt;
  }
  return std::string(1, static_cast<char>(byte));
}

absl::Status CheckId(const char* what, int32_t id, size_t vocabulary_size, bool optional) {
  if ((optional && id == -1) || (id >= 0 && static_cast<size_t>(id) < vocabulary_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("vocabulary: ", what, " ", id, " is not one of the ", vocabulary_size, " tokens"));
}

absl::Status Check(const TokenizerData& data) {
  if (data.model != "gpt2") {
    return absl::UnimplementedError(absl::StrCat("tokenizer model \"", data.model,
                                                 "\" (tokenizer.ggml.model) is not known; known is gpt2 (byte-level "
                                                 "BPE). Use a model with one of these."));
  }
  const size_t size = data.tokens.size();
  if (size == 0) return absl::InvalidArgumentError("vocabulary: no tokens (tokenizer.ggml.tokens)");
  if (data.types.size() != size) {
    return absl::InvalidArgumentError(absl::StrCat("vocabulary: ", size, " tokens (tokenizer.ggml.tokens) but ",
                                                   data.types.size(), " types (tokenizer.ggml.token_type)"));
  }
  if (absl::Status status = CheckId("beginning-of-text token", data.bos_id, size, true); !status.ok()) return status;
  if (absl::Status status = CheckId("end-of-text token", data.eos_id, size, true); !status.ok()) return status;
  for (const int32_t id : data.eog_ids) {
    if (absl::Status status = CheckId("end-of-answer token", id, size, false); !status.ok()) return status;
  }
  if (data.add_bos && data.bos_id < 0) {
    return absl::InvalidArgumentError("vocabulary: add_bos_token is set, but there is no bos_token_id");
  }
  if (data.add_eos && data.eos_id < 0) {
    return absl::InvalidArgumentError("vocabulary: add_eos_token is set, but there is no eos_token_id");
  }
  return absl::OkStatus();
}

// The vocabulary sorted by what its tokens are for.
struct SortedTokens {
  std::vector<std::string> bytes;  // by id
  Bpe::Vocabulary mergeable;
  SpecialTokens special;
};

absl::Status AddToken(const TokenizerData& data, int32_t id, SortedTokens& sorted) {
  const std::string& name = data.tokens[id];
  const auto duplicate = [&] {
    return absl::InvalidArgumentError(absl::StrCat("vocabulary: token ", id, " \"", name, "\" is there twice"));
  };
  switch (data.types[id]) {
    case TokenType::kNormal: {
      const std::optional<std::string> bytes = BytesFromSpelling(name);
      sorted.bytes[id] = bytes.value_or(name);
      if (!bytes.has_value() || bytes->empty()) return absl::OkStatus();  // no text leads to it
      return sorted.mergeable.emplace(*bytes, id).second ? absl::OkStatus() : duplicate();
    }
    case TokenType::kControl:
    case TokenType::kUnknown:
    case TokenType::kUserDefined:
      sorted.bytes[id] = name;
      if (name.empty()) return absl::OkStatus();
      return sorted.special.Add(name, id) ? absl::OkStatus() : duplicate();
    case TokenType::kByte: {
      const std::optional<std::string> bytes = BytesOfByteToken(name);
      if (!bytes.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("vocabulary: byte token ", id, " is named \"", name, "\", not like <0x0A>"));
      }
      sorted.bytes[id] = *bytes;
      return absl::OkStatus();
    }
    case TokenType::kUnused:
      return absl::OkStatus();  // padding of the embedding matrix: neither read nor written as text
  }
  return absl::InvalidArgumentError(absl::StrCat("vocabulary: token ", id, " \"", name, "\" has the unknown type ",
                                                 static_cast<int>(data.types[id])));
}

absl::StatusOr<SortedTokens> SortTokens(const TokenizerData& data) {
  const auto size = static_cast<int32_t>(data.tokens.size());
  SortedTokens sorted;
  sorted.bytes.resize(size);
  sorted.mergeable.reserve(size);
  for (int32_t id = 0; id < size; ++id) {
    if (absl::Status status = AddToken(data, id, sorted); !status.ok()) return status;
  }
  // Merges may name user-defined tokens, and byte tokens stand in for bytes that have no other; normal tokens win.
  // Control tokens never come out of merging: no text may reach them but by name.
  for (int32_t id = 0; id < size; ++id) {
    const bool stands_in = data.types[id] == TokenType::kUserDefined || data.types[id] == TokenType::kByte;
    if (stands_in && !sorted.bytes[id].empty()) sorted.mergeable.emplace(sorted.bytes[id], id);
  }
  return sorted;
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<std::string> bytes;  // by id
  std::vector<TokenType> types;    // by id
  SpecialTokens special;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  int32_t bos_id = -1;  // -1: not added
  int32_t eos_id = -1;

  void EncodePlain(std::string_view text, std::vector<int32_t>& ids) const;
};

void Tokenizer::Impl::EncodePlain(std::string_view text, std::vector<int32_t>& ids) const {
  pre_tokenizer.Split(text, [&](std::string_view word) {
    const auto first = static_cast<uint8_t>(word[0]);
    const bool stray = word.size() == 1 && first >= 0x80;  // not UTF-8; vocabularies tend to lack such bytes
    bpe.Encode(stray && !bpe.HasByte(first) ? kReplacementCharacter : word, ids);
  });
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const TokenizerData& data) {
  if (absl::Status status = Check(data); !status.ok()) return status;
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(data.pre_tokenizer);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  absl::StatusOr<SortedTokens> sorted = SortTokens(data);
  if (!sorted.ok()) return sorted.status();
  absl::StatusOr<Bpe> bpe = Bpe::Create(std::move(sorted->mergeable), data.merges, pre_tokenizer->ignore_merges());
  if (!bpe.ok()) return bpe.status();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::unique_ptr<Impl>(
      new Impl{std::move(sorted->bytes), data.types, std::move(sorted->special), *std::move(pre_tokenizer),
               *std::move(bpe), data.add_bos ? data.bos_id : -1, data.add_eos ? data.eos_id : -1})));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, SpecialText special, bool add_special) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 2);
  if (add_special && impl_->bos_id >= 0) ids.push_back(impl_->bos_id);
  size_t done = 0;
  for (size_t from = 0; const auto match = impl_->special.Find(text, from);) {
    from = match->begin + match->length;
    if (special == SpecialText::kPlain && IsControl(match->id)) continue;
    impl_->EncodePlain(text.substr(done, match->begin - done), ids);
    ids.push_back(match->id);
    done = from;
  }
  impl_->EncodePlain(text.substr(done), ids);
  if (add_special && impl_->eos_id >= 0) ids.push_back(impl_->eos_id);
  return ids;
}

std::vector<int32_t> Tokenizer::EncodePrompt(std::string_view text, std::span<const TextSpan> template_text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 2);
  auto span = template_text.begin();  // the first that ends after what was looked at; matches come in order
  const auto counts = [&](const SpecialTokens::Match& match) {
    if (!IsControl(match.id)) return true;
    while (span != template_text.end() && span->end <= match.begin) ++span;
    return span != template_text.end() && span->begin <= match.begin && match.begin + match.length <= span->end;
  };
  size_t done = 0;
  while (const auto match = impl_->special.Find(text, done, counts)) {
    impl_->EncodePlain(text.substr(done, match->begin - done), ids);
    ids.push_back(match->id);
    done = match->begin + match->length;
  }
  impl_->EncodePlain(text.substr(done), ids);
  const bool has_bos = std::find(ids.begin(), ids.end(), impl_->bos_id) != ids.end();
  if (impl_->bos_id >= 0 && !has_bos) ids.insert(ids.begin(), impl_->bos_id);
  return ids;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->bytes[id];
}

bool Tokenizer::IsControl(int32_t id) const {
  return id >= 0 && id < vocab_size() && IsControlType(impl_->types[id]);
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(impl_->bytes.size());
}

}  // namespace sluice::engine
