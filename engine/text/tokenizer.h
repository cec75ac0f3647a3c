// Text <-> token ids, as the model was trained: byte-level BPE with the pre-tokenizer that the file names.
//
// Promises: ids equal those of Hugging Face `tokenizers` on the same vocabulary. Every input is encodable: bytes that
// are not UTF-8 are encoded byte by byte, never dropped; one that the vocabulary has no token for becomes U+FFFD.
// Thread-safe once created.
//
// Limits: a vocabulary need not spell all of UTF-8 (SmolLM2's lacks six control characters and the lead bytes F1 and
// F2); such bytes of well-formed text are left out, as in the reference. Unicode tables and normalizers: see
// pre_tokenizer.h. GGUF doesn't carry the lstrip, rstrip, single_word and normalized flags of added tokens; they count
// as unset.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/files/tokenizer_data.h"
#include "engine/text/text_span.h"

namespace sluice::engine {

// Whether names of control tokens in the text become those tokens. Raw prompts may use them; text that a user wrote
// into a chat message never may. Names of user-defined tokens always do: they are words that the vocabulary gained, not
// instructions. The leftmost name counts, the longest of those that start at the same byte.
enum class SpecialText : uint8_t { kParse, kPlain };

class Tokenizer {
 public:
  // UNIMPLEMENTED for a tokenizer model or pre-tokenizer that is not known, INVALID_ARGUMENT for a damaged vocabulary.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const TokenizerData& data);
  ~Tokenizer();

  // add_bos / add_eos of the file apply when `add_special` is set.
  std::vector<int32_t> Encode(std::string_view text, SpecialText special, bool add_special = true) const;

  // Text of which a chat template wrote `template_text` (ascending, apart) and a user the rest: names of control tokens
  // count only where they lie in one piece of the template's. What is between special tokens is encoded as one text,
  // whoever wrote it. Where add_bos of the file applies, the beginning-of-text token is added unless the template
  // wrote it; nothing is added at the end.
  std::vector<int32_t> EncodePrompt(std::string_view text, std::span<const TextSpan> template_text) const;

  // The raw bytes that a token stands for; may be part of a character. A control token's name. Empty for unused tokens
  // and ids out of range.
  std::string_view TokenBytes(int32_t id) const;

  // Control tokens (and the unknown token) produce no text in an answer; they still count as tokens.
  bool IsControl(int32_t id) const;

  int vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
