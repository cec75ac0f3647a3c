#include "engine/files/testing/tiny_model.h"

#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/files/testing/random_tensor.h"

namespace sluice::engine {
namespace {

using kernels::DType;

// How byte-level BPE spells a byte: printable Latin-1 as itself, the others from U+0100 on.
std::string SpellByte(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, char(code));
  return {char(0xc0 | code >> 6), char(0x80 | (code & 63))};
}

// "\u0120" is the spelling of a space.
constexpr const char* kMerges[] = {"\u0120 t",      "\u0120 a",      "h e",           "i n",
                                   "r e",           "o n",           "e r",           "\u0120t he",
                                   "a t",           "\u0120 s",      "\u0120 o",      "\u0120 w",
                                   "n d",           "i t",           "o r",           "e s",
                                   "i s",           "e n",           "l l",           "o u",
                                   "\u0120a nd",    "in g",          "\u0120 i",      "e d",
                                   "\u0120o f",     "l o",           "h i",           "1 2",
                                   "\u00e2 \u0122", "\u00c3 \u00a9", "\u0120 \u0120", "\u0120\u0120 \u0120\u0120"};

void AddVocabulary(GgufWriter& out, int* vocab) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, merges;
  std::vector<int32_t> types(tokens.size(), 3);
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(SpellByte(byte));
  for (std::string merge : kMerges) {
    merges.push_back(merge);
    merge.erase(merge.find(' '), 1);
    tokens.push_back(std::move(merge));
  }
  types.resize(tokens.size(), 1);
  *vocab = int(tokens.size());
  out.AddString("tokenizer.ggml.model", "gpt2");
  out.AddString("tokenizer.ggml.pre", "smollm");
  out.AddStrings("tokenizer.ggml.tokens", tokens);
  out.AddI32s("tokenizer.ggml.token_type", types);
  out.AddStrings("tokenizer.ggml.merges", merges);
  out.AddU32("tokenizer.ggml.bos_token_id", 1);
  out.AddU32("tokenizer.ggml.eos_token_id", 2);
  out.AddBool("tokenizer.ggml.add_bos_token", false);
  out.AddString(
      "tokenizer.chat_template",
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
}

void AddHyperparameters(GgufWriter& out, const TinyModelSpec& spec) {
  out.AddString("general.architecture", "llama");
  out.AddString("general.name", absl::StrCat("tiny random llama, seed ", spec.seed));
  out.AddU32("llama.block_count", uint32_t(spec.layers));
  out.AddU32("llama.context_length", uint32_t(spec.context));
  if (spec.window > 0) out.AddU32("llama.attention.sliding_window", uint32_t(spec.window));
  out.AddU32("llama.embedding_length", uint32_t(spec.hidden));
  out.AddU32("llama.feed_forward_length", uint32_t(spec.ffn));
  out.AddU32("llama.attention.head_count", uint32_t(spec.heads));
  out.AddU32("llama.attention.head_count_kv", uint32_t(spec.kv_heads));
  if (spec.hidden != spec.heads * spec.head_dim) {
    out.AddU32("llama.attention.key_length", uint32_t(spec.head_dim));
    out.AddU32("llama.attention.value_length", uint32_t(spec.head_dim));
  }
  out.AddU32("llama.rope.dimension_count", uint32_t(spec.head_dim));
  out.AddF32("llama.rope.freq_base", 10000.0f);
  out.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

// Adds tensors, drawing from one stream of random numbers in the order of the calls.
class Weights {
 public:
  Weights(GgufWriter& out, const TinyModelSpec& spec)
      : out_(out), spec_(spec), random_(spec.seed), uses_(spec.types.size(), 0) {}

  void Matrix(const std::string& name, int rows, int cols, float deviation) {
    const std::optional<DType> type = NextType(cols);
    if (!type.has_value()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("no type of the spec fits rows of ", cols, " (", name, ")"));
      return;
    }
    out_.AddTensor({name,
                    {uint64_t(cols), uint64_t(rows)},
                    GgufTypeId(*type),
                    RandomTensor(*type, rows, cols, deviation, random_)});
  }

  // A linear layer that keeps unit variance, times `gain`.
  void Linear(const std::string& name, int rows, int cols, float gain) {
    Matrix(name, rows, cols, gain / std::sqrt(float(cols)));
  }

  // Uniform in [low, low + 1).
  void Vector(const std::string& name, int size, float low) {
    std::string data;
    for (int i = 0; i < size; ++i) {
      const float value = low + random_.Uniform();
      data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    out_.AddTensor({name, {uint64_t(size)}, GgufTypeId(DType::kF32), std::move(data)});
  }

  const absl::Status& status() const { return status_; }

 private:
  // Of the types that fit, the least used so far: every type gets its turn where it can.
  std::optional<DType> NextType(int cols) {
    std::optional<size_t> best;
    for (size_t i = 0; i < spec_.types.size(); ++i) {
      if (cols % kernels::Info(spec_.types[i]).block_elements != 0) continue;
      if (!best.has_value() || uses_[i] < uses_[*best]) best = i;
    }
    if (!best.has_value()) return std::nullopt;
    ++uses_[*best];
    return spec_.types[*best];
  }

  GgufWriter& out_;
  const TinyModelSpec& spec_;
  TestRandom random_;
  std::vector<int> uses_;  // of each type of the spec
  absl::Status status_;
};

// Gains: sharp attention (so that distant tokens matter), layers that outweigh the embedding (so that the next token
// isn't a function of the last one alone), and logits with a deviation of about 2.
void AddLayer(Weights& w, const TinyModelSpec& spec, int layer) {
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  const int q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
  w.Vector(prefix + "attn_norm.weight", spec.hidden, 0.5f);
  w.Linear(prefix + "attn_q.weight", q, spec.hidden, 1.5f);
  w.Linear(prefix + "attn_k.weight", kv, spec.hidden, 1.5f);
  w.Linear(prefix + "attn_v.weight", kv, spec.hidden, 2.0f);
  w.Linear(prefix + "attn_output.weight", spec.hidden, q, 2.0f);
  w.Vector(prefix + "ffn_norm.weight", spec.hidden, 0.5f);
  w.Linear(prefix + "ffn_gate.weight", spec.ffn, spec.hidden, 1.5f);
  w.Linear(prefix + "ffn_up.weight", spec.ffn, spec.hidden, 1.5f);
  w.Linear(prefix + "ffn_down.weight", spec.hidden, spec.ffn, 1.5f);
}

}  // namespace

absl::StatusOr<GgufWriter> MakeTinyModel(const TinyModelSpec& given) {
  TinyModelSpec spec = given;
  if (spec.hidden == 0) spec.hidden = spec.heads * spec.head_dim;
  for (int number : {spec.layers, spec.heads, spec.kv_heads, spec.head_dim, spec.hidden, spec.ffn, spec.context}) {
    if (number <= 0) return absl::InvalidArgumentError("every number of a tiny model must be positive");
  }
  GgufWriter out;
  int vocab = 0;
  AddHyperparameters(out, spec);
  AddVocabulary(out, &vocab);
  Weights w(out, spec);
  w.Linear("token_embd.weight", vocab, spec.hidden, spec.tied ? 2.0f : 8.0f);
  w.Vector("output_norm.weight", spec.hidden, 0.5f);
  if (!spec.tied) w.Linear("output.weight", vocab, spec.hidden, 2.0f);
  if (spec.rope_factors) w.Vector("rope_freqs.weight", spec.head_dim / 2, 1.0f);
  for (int layer = 0; layer < spec.layers; ++layer) AddLayer(w, spec, layer);
  if (!w.status().ok()) return w.status();
  return out;
}

absl::Status WriteTinyModel(const std::string& path, const TinyModelSpec& spec) {
  const absl::StatusOr<GgufWriter> model = MakeTinyModel(spec);
  if (!model.ok()) return model.status();
  const std::string bytes = model->Serialize();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
  return file.good() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(path, ": can't write"));
}

}  // namespace sluice::engine
