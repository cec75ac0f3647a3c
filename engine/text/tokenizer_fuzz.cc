// Any bytes survive encoding and decoding, by the token and as streamed text.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "engine/text/detokenizer.h"
#include "engine/text/testing/small_vocabulary.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace sluice::engine {
namespace {

std::unique_ptr<Tokenizer> Make(const char* pre_tokenizer) {
  return *Tokenizer::Create(SmallVocabulary(pre_tokenizer));
}

std::string WithReplacements(std::string_view bytes) {
  std::string text;
  for (; !bytes.empty(); bytes.remove_prefix(NextUtf8(bytes).length)) {
    const Utf8Step step = NextUtf8(bytes);
    text += step.kind == Utf8Kind::kCharacter ? bytes.substr(0, step.length) : kReplacementCharacter;
  }
  return text;
}

void Check(const Tokenizer& tokenizer, std::string_view bytes, SpecialText special) {
  Detokenizer detokenizer(&tokenizer, /*skip_control=*/false);
  std::string raw;
  std::string text;
  for (const int32_t id : tokenizer.Encode(bytes, special)) {
    raw += tokenizer.TokenBytes(id);
    const std::string piece = detokenizer.Add(id);
    if (ValidPrefix(piece) != piece.size()) std::abort();
    text += piece;
  }
  text += detokenizer.Flush();
  if (raw != bytes || text != WithReplacements(bytes)) std::abort();
}

}  // namespace
}  // namespace sluice::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::engine::SpecialText;
  static const auto* const kTokenizers = new std::unique_ptr<sluice::engine::Tokenizer>[] {
    sluice::engine::Make("gpt-2"), sluice::engine::Make("smollm"), sluice::engine::Make("llama-bpe"),
        sluice::engine::Make("qwen2"), sluice::engine::Make("deepseek-v3")
  };
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  sluice::engine::Check(*kTokenizers[data[0] % 5], bytes, data[0] < 128 ? SpecialText::kParse : SpecialText::kPlain);
  return 0;
}
