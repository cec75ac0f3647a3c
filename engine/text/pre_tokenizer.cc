#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/text/utf8.h"

namespace sluice::engine {
namespace {

// The expressions are part of the models: what their tokenizer.json files (and GPT-2's published vocabulary) say.
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3Han = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A rule splits in stages: each cuts its matches out of the pieces that the stage before left, and what lies between
// matches stays a piece. A piece is all that a stage sees; look-ahead ends with it.
struct Rule {
  std::vector<std::string_view> names;
  std::vector<std::string_view> stages;
  bool ignore_merges = false;
};

const std::vector<Rule>& Rules() {
  static const auto* const kRules = new std::vector<Rule>{
      {{"gpt-2", "default"}, {kGpt2}},
      {{"smollm", "starcoder"}, {kDigit, kGpt2}},
      {{"llama-bpe", "llama3", "llama-v3"}, {kLlama3}, true},
      {{"qwen2", "deepseek-r1-qwen"}, {kQwen2}},
      {{"deepseek-v3"}, {R"(\p{N}{1,3})", kDeepSeek3Han, kDeepSeek3}},
  };
  return *kRules;
}

// PCRE2's \s takes U+180E for a space, which Unicode (and the tokenizers that the models were trained with) does not.
std::string WithUnicodeSpaces(std::string_view pattern) {
  return absl::StrReplaceAll(std::string(pattern), {{R"(\s)", R"(\p{White_Space})"}, {R"(\S)", R"(\P{White_Space})"}});
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeMatchContext>;

// Steps per match, far above what any of the patterns needs for a piece of a few megabytes, and memory in KiB for the
// interpreter, which runs where the JIT compiler is not available.
constexpr uint32_t kMatchLimit = 200'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

absl::StatusOr<Code> Compile(std::string_view pattern) {
  const std::string source = WithUnicodeSpaces(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_UTF | PCRE2_UCP, &error,
                          &offset, nullptr));
  if (code == nullptr) {
    return absl::InternalError(
        absl::StrCat("pre-tokenizer: PCRE2 error ", error, " at offset ", offset, " of ", source));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without it the interpreter does the same, slower
  return code;
}

}  // namespace

struct PreTokenizer::Impl {
  std::vector<Code> stages;
  MatchContext context;
  bool ignore_merges = false;

  // Cuts `piece` (well-formed UTF-8) by the stages from `stage` on.
  void Cut(size_t stage, std::string_view piece, pcre2_match_data* match, WordFn word) const;

  // The first match at or after `from`; past the end when there is none.
  std::pair<size_t, size_t> Find(size_t stage, std::string_view piece, size_t from, pcre2_match_data* match) const;
};

std::pair<size_t, size_t> PreTokenizer::Impl::Find(size_t stage, std::string_view piece, size_t from,
                                                   pcre2_match_data* match) const {
  // The caller has checked the text; checking it again from `from` to the end for each word would be quadratic.
  const int found = pcre2_match(stages[stage].get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, context.get());
  // A limit that was hit counts as no match: the rest stays one piece, so that no byte is lost.
  if (found < 0) return {piece.size(), piece.size()};
  const PCRE2_SIZE* const span = pcre2_get_ovector_pointer(match);
  return {span[0], span[1]};
}

void PreTokenizer::Impl::Cut(size_t stage, std::string_view piece, pcre2_match_data* match, WordFn word) const {
  if (piece.empty()) return;
  if (stage == stages.size()) return word(piece);
  for (size_t from = 0; from < piece.size();) {
    // `match` is free again once the span is known: the stages below share it.
    const auto [begin, end] = Find(stage, piece, from, match);
    Cut(stage + 1, piece.substr(from, begin - from), match, word);
    Cut(stage + 1, piece.substr(begin, end - begin), match, word);
    from = end;
  }
}

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::ignore_merges() const {
  return impl_->ignore_merges;
}

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  std::vector<std::string> known;
  for (const Rule& rule : Rules()) {
    known.insert(known.end(), rule.names.begin(), rule.names.end());
    if (std::find(rule.names.begin(), rule.names.end(), name) == rule.names.end()) continue;
    auto impl = std::make_unique<Impl>();
    for (const std::string_view pattern : rule.stages) {
      absl::StatusOr<Code> code = Compile(pattern);
      if (!code.ok()) return code.status();
      impl->stages.push_back(*std::move(code));
    }
    impl->ignore_merges = rule.ignore_merges;
    impl->context.reset(pcre2_match_context_create(nullptr));
    if (impl->context == nullptr) return absl::ResourceExhaustedError("pre-tokenizer: no memory for PCRE2");
    pcre2_set_match_limit(impl->context.get(), kMatchLimit);
    pcre2_set_heap_limit(impl->context.get(), kHeapLimitKib);
    return PreTokenizer(std::move(impl));
  }
  return absl::UnimplementedError(absl::StrCat("pre-tokenizer \"", std::string(name),
                                               "\" (tokenizer.ggml.pre) is not known; known are ",
                                               absl::StrJoin(known, ", "), ". Use a model with one of these."));
}

void PreTokenizer::Split(std::string_view text, WordFn word) const {
  const MatchData match(pcre2_match_data_create(1, nullptr));
  while (!text.empty()) {
    const size_t valid = ValidPrefix(text);
    impl_->Cut(0, text.substr(0, valid), match.get(), word);
    text.remove_prefix(valid);
    if (text.empty()) break;
    const size_t invalid = NextUtf8(text).length;
    for (size_t i = 0; i < invalid; ++i) word(text.substr(i, 1));
    text.remove_prefix(invalid);
  }
}

}  // namespace sluice::engine
