// Splits text into the words that byte-level BPE merges within, by the rules that the model file names.
//
// Promises: the words concatenate to the text, byte for byte. A byte that is not part of well-formed UTF-8 is a word of
// its own, and no other word is a single byte above 0x7F. Time is linear in the text for runs of any one kind of
// character. Thread-safe.
//
// Limits: Unicode tables are PCRE2's (10.42: Unicode 14); characters assigned later count as neither letter nor digit.
// A normalizer (NFC, in Qwen 2's original tokenizer) is not applied: GGUF doesn't carry it.
#pragma once

#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace sluice::engine {

class PreTokenizer {
 public:
  // `name` is GGUF's tokenizer.ggml.pre. UNIMPLEMENTED for a name that is not known.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // The words point into `text`.
  using WordFn = absl::FunctionRef<void(std::string_view word)>;
  void Split(std::string_view text, WordFn word) const;

  // Vocabularies of this kind take a word that is a token as that token, without merging.
  bool ignore_merges() const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
