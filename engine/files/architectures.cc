#include "engine/files/architectures.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "engine/files/concat.h"
#include "kernels/dequant.h"

namespace sluice::engine {
namespace {

// Far above any model, far below what would overflow an int in a product of two.
constexpr int kMaxLayers = 4096, kMaxHidden = 1 << 18, kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxFfn = 1 << 20,
              kMaxVocab = 1 << 22, kMaxContext = 1 << 26;

// Reads the keys "<architecture>.<name>" and keeps the first error, so that a reader is a plain list of fields.
class Hyperparameters {
 public:
  Hyperparameters(const Gguf& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  const absl::Status& status() const { return status_; }
  std::string Key(std::string_view name) const { return Concat(prefix_, ".", name); }

  bool Has(std::string_view name) const { return file_.Has(Key(name)); }
  int Int(std::string_view name, int max) { return int(Take(file_.GetInt(Key(name), 1, max), int64_t{1})); }
  int NaturalOr(std::string_view name, int max, int otherwise) {
    return Has(name) ? int(Take(file_.GetInt(Key(name), 0, max), int64_t{otherwise})) : otherwise;
  }
  int IntOr(std::string_view name, int max, int otherwise) { return Has(name) ? Int(name, max) : otherwise; }
  double Positive(std::string_view name) {
    const double value = Take(file_.GetFloat(Key(name)), 1.0);
    if (value <= 0) Fail(Concat("key ", Printable(Key(name)), " is ", value, ", not positive"));
    return value;
  }
  double PositiveOr(std::string_view name, double otherwise) { return Has(name) ? Positive(name) : otherwise; }

  void Fail(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(Concat(file_.source(), ": ", message));
  }
  void Unsupported(const std::string& message) {
    if (status_.ok()) status_ = absl::UnimplementedError(Concat(file_.source(), ": ", message));
  }

 private:
  template <typename T>
  T Take(absl::StatusOr<T> value, T on_error) {
    if (value.ok()) return *value;
    if (status_.ok()) status_ = value.status();
    return on_error;
  }

  const Gguf& file_;
  std::string prefix_;
  absl::Status status_;
};

// The shape that a decoder's attention has in most architectures.
void ReadHeads(Hyperparameters& h, ModelConfig& c) {
  c.num_heads = h.Int("attention.head_count", kMaxHeads);
  c.num_kv_heads = h.IntOr("attention.head_count_kv", kMaxHeads, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0) {
    h.Fail(Concat("has ", c.num_heads, " attention heads, which ", c.num_kv_heads, " key-value heads don't divide"));
  }
  // Only where the heads' length is left to be worked out must they divide the embedding.
  if (!h.Has("attention.key_length") && c.hidden % c.num_heads != 0) {
    h.Fail(Concat("has an embedding of ", c.hidden, ", which ", c.num_heads, " heads don't divide"));
  }
  c.head_dim = h.IntOr("attention.key_length", kMaxHeadDim, c.hidden / c.num_heads);
  if (c.head_dim < 2 || c.head_dim > kMaxHeadDim || c.head_dim % 2 != 0) {
    h.Fail(Concat("has heads of ", c.head_dim, ", not an even number from 2 to ", kMaxHeadDim));
  }
  if (h.IntOr("attention.value_length", kMaxHeadDim, c.head_dim) != c.head_dim) {
    h.Unsupported("has values of another length than keys, which is not supported");
  }
}

void ReadRope(const Gguf& file, Hyperparameters& h, ModelConfig& c) {
  c.rope_theta = h.PositiveOr("rope.freq_base", 10000.0);
  c.rotary_dim = h.IntOr("rope.dimension_count", kMaxHeadDim, c.head_dim);
  if (c.rotary_dim > c.head_dim || c.rotary_dim % 2 != 0) {
    h.Fail(Concat("rotates ", c.rotary_dim, " of the ", c.head_dim, " dimensions of a head"));
  }
  const std::string scaling = h.Key("rope.scaling.type");
  if (!file.Has(scaling)) return;
  const absl::StatusOr<std::string> type = file.GetString(scaling);
  if (!type.ok()) return h.Fail(Concat("key ", Printable(scaling), " should be a string"));
  if (*type != "none") h.Unsupported(Concat("scales RoPE by ", Printable(*type), ", which is not supported"));
}

// Divisors of the rotary frequencies, as Llama 3.1 and later carry them.
absl::Status ReadRopeFactors(const Gguf& file, ModelConfig& c) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return absl::OkStatus();
  const kernels::HostTensor& data = tensor->data;
  if (data.rows != 1 || data.cols != c.rotary_dim / 2) return absl::OkStatus();  // CheckTensors says what is wrong
  c.rope_factors.resize(size_t(data.cols));
  kernels::DequantizeRow(data.type, data.data, data.cols, c.rope_factors.data());
  for (float factor : c.rope_factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      return absl::InvalidArgumentError(
          Concat(file.source(), ": tensor \"rope_freqs.weight\" holds ", factor, ", not a positive number"));
    }
  }
  return absl::OkStatus();
}

std::vector<TensorSpec> LlamaTensors(const ModelConfig& c) {
  const int64_t q = int64_t{c.num_heads} * c.head_dim, kv = int64_t{c.num_kv_heads} * c.head_dim;
  std::vector<TensorSpec> out = {{"token_embd.weight", c.vocab, c.hidden},
                                 {"output_norm.weight", 1, c.hidden},
                                 {"output.weight", c.vocab, c.hidden, false},
                                 {"rope_freqs.weight", 1, c.rotary_dim / 2, false}};
  for (int layer = 0; layer < c.num_layers; ++layer) {
    const auto add = [&](std::string_view name, int64_t rows, int64_t cols, bool required = true) {
      out.push_back(TensorSpec{Concat("blk.", layer, ".", name), rows, cols, required});
    };
    add("attn_norm.weight", 1, c.hidden);
    add("attn_q.weight", q, c.hidden);
    add("attn_k.weight", kv, c.hidden);
    add("attn_v.weight", kv, c.hidden);
    add("attn_q.bias", 1, q, false);
    add("attn_k.bias", 1, kv, false);
    add("attn_v.bias", 1, kv, false);
    add("attn_output.weight", c.hidden, q);
    add("ffn_norm.weight", 1, c.hidden);
    add("ffn_gate.weight", c.ffn, c.hidden);
    add("ffn_up.weight", c.ffn, c.hidden);
    add("ffn_down.weight", c.hidden, c.ffn);
  }
  return out;
}

absl::StatusOr<Architecture> ReadLlama(const Gguf& file, ModelConfig c) {
  Hyperparameters h(file, "llama");
  c.num_layers = h.Int("block_count", kMaxLayers);
  c.hidden = h.Int("embedding_length", kMaxHidden);
  c.ffn = h.Int("feed_forward_length", kMaxFfn);
  c.context_length = h.Int("context_length", kMaxContext);
  c.window = h.NaturalOr("attention.sliding_window", kMaxContext, 0);
  c.rms_eps = float(h.Positive("attention.layer_norm_rms_epsilon"));
  ReadHeads(h, c);
  ReadRope(file, h, c);
  c.rope_style = kernels::RopeStyle::kInterleaved;
  if (file.Has(h.Key("expert_count")) && file.GetInt(h.Key("expert_count"), 0, 0) != absl::StatusOr<int64_t>(0)) {
    h.Unsupported("is a mixture of experts, which is not supported");
  }
  if (!h.status().ok()) return h.status();
  if (absl::Status s = ReadRopeFactors(file, c); !s.ok()) return s;
  std::vector<TensorSpec> tensors = LlamaTensors(c);
  return Architecture{std::move(c), std::move(tensors)};
}

struct Row {
  std::string_view name;
  absl::StatusOr<Architecture> (*read)(const Gguf& file, ModelConfig common);
};
constexpr Row kArchitectures[] = {{"llama", ReadLlama}};

std::string KnownArchitectures() {
  return absl::StrJoin(kArchitectures, ", ", [](std::string* out, const Row& row) { out->append(row.name); });
}

// The vocabulary is as long as the embedding table: some files have no vocab_size.
absl::StatusOr<int> VocabSize(const Gguf& file) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return absl::InvalidArgumentError(Concat(file.source(), ": tensor \"token_embd.weight\" is missing"));
  }
  if (embedding->data.rows > kMaxVocab) {
    return absl::InvalidArgumentError(Concat(file.source(), ": tensor \"token_embd.weight\" has ", embedding->data.rows,
                                             " rows, more than ", kMaxVocab, " tokens"));
  }
  return int(embedding->data.rows);
}

std::string ShapeText(int64_t rows, int64_t cols) {
  return rows == 1 ? Concat("[", cols, "]") : Concat("[", rows, "][", cols, "]");
}

}  // namespace

absl::StatusOr<Architecture> ReadArchitecture(const Gguf& file) {
  const absl::StatusOr<std::string> name = file.GetString("general.architecture");
  if (!name.ok()) return name.status();
  for (const Row& row : kArchitectures) {
    if (row.name != *name) continue;
    ModelConfig common;
    common.architecture = *name;
    if (absl::StatusOr<std::string> title = file.GetString("general.name"); title.ok()) common.name = *title;
    const absl::StatusOr<int> vocab = VocabSize(file);
    if (!vocab.ok()) return vocab.status();
    common.vocab = *vocab;
    return row.read(file, std::move(common));
  }
  return absl::UnimplementedError(Concat(file.source(), ": the architecture ", Printable(*name),
                                         " is not supported; known: ", KnownArchitectures()));
}

absl::Status CheckTensors(const Gguf& file, const Architecture& architecture) {
  absl::flat_hash_set<std::string_view> known;
  for (const TensorSpec& spec : architecture.tensors) {
    known.insert(spec.name);
    const GgufTensor* tensor = file.FindTensor(spec.name);
    if (tensor == nullptr) {
      if (!spec.required) continue;
      return absl::InvalidArgumentError(Concat(file.source(), ": tensor ", Printable(spec.name), " is missing"));
    }
    if (tensor->data.rows != spec.rows || tensor->data.cols != spec.cols) {
      return absl::InvalidArgumentError(Concat(file.source(), ": tensor ", Printable(spec.name), " has the shape ",
                                               ShapeText(tensor->data.rows, tensor->data.cols),
                                               ", the model's hyperparameters ask for ",
                                               ShapeText(spec.rows, spec.cols)));
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (known.contains(tensor.name)) continue;
    return absl::UnimplementedError(Concat(file.source(), ": tensor ", Printable(tensor.name),
                                           " is not known to the architecture ", architecture.config.architecture,
                                           "; leaving it out would change the answers"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
