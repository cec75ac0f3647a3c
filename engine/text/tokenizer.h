// Text <-> token ids, as the model was trained: byte-level BPE with the pre-tokenizer that the file names.
//
// Promises: ids equal those of Hugging Face `tokenizers` on the same vocabulary. Every input is encodable: bytes that are
// not UTF-8 are encoded byte by byte, never dropped. Thread-safe once created.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/files/tokenizer_data.h"

namespace sluice::engine {

// Whether names of special tokens in the text become those tokens. Raw prompts may use them; text that a user wrote into
// a chat message never may.
enum class SpecialText : uint8_t { kParse, kPlain };

class Tokenizer {
 public:
  // UNIMPLEMENTED for a tokenizer model or pre-tokenizer that is not known, INVALID_ARGUMENT for a damaged vocabulary.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const TokenizerData& data);
  ~Tokenizer();

  // add_bos / add_eos of the file apply when `add_special` is set.
  std::vector<int32_t> Encode(std::string_view text, SpecialText special, bool add_special = true) const;

  // The raw bytes that a token stands for; may be part of a character. Empty for ids out of range.
  std::string_view TokenBytes(int32_t id) const;

  // Control tokens produce no text in an answer (they still count as tokens).
  bool IsControl(int32_t id) const;

  int vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
