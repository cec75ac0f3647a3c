#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/layers.h"
#include "engine/model/rope_table.h"
#include "engine/model/weights.h"

#define SLUICE_RETURN_IF_ERROR(expr) \
  if (absl::Status status_ = (expr); !status_.ok()) return status_

namespace sluice::engine {
namespace {

using kernels::ActivationUse;
using kernels::Weight;

// Stores the value of a StatusOr, or hands back its error.
template <typename T, typename U>
absl::Status Assign(absl::StatusOr<T> value, U& to) {
  if (!value.ok()) return value.status();
  to = *std::move(value);
  return absl::OkStatus();
}

absl::StatusOr<const Weight*> RopeWeight(const ModelConfig& config, int max_context, Weights& weights) {
  // The table's reduction holds for angles below 2^20; factors come from the file.
  constexpr double kMaxAngle = 1 << 20;
  if (max_context >= kMaxAngle) {
    return absl::InvalidArgumentError(absl::StrCat("a context of ", max_context, " tokens is beyond 2^20"));
  }
  for (float factor : config.rope_factors) {
    if (!(factor > 0.0f && max_context / double(factor) < kMaxAngle)) {
      return absl::InvalidArgumentError(absl::StrCat("rope factor ", factor, " is not a usable divisor"));
    }
  }
  return weights.Make("rope table",
                      MakeRopeTable(max_context, config.rotary_dim, config.rope_theta, config.rope_factors),
                      config.rotary_dim);
}

absl::Status AddAttention(const ModelConfig& config, int index, const RankOfSplit& of, const Weight* rope,
                          Weights& weights, std::vector<Layer>& layers) {
  const std::string prefix = absl::StrCat("blk.", index, ".");
  const Part heads = of.split->heads(of.rank), kv_heads = of.split->kv_heads(of.rank);
  const Part q{heads.begin * config.head_dim, heads.end * config.head_dim};
  const Part kv{kv_heads.begin * config.head_dim, kv_heads.end * config.head_dim};
  AttentionLayer layer;
  layer.of = of;
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table(prefix + "attn_norm.weight"), layer.norm));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_q.weight", q), layer.wq));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_k.weight", kv), layer.wk));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_v.weight", kv), layer.wv));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_output.weight", of.split->hidden(of.rank)), layer.wo));
  SLUICE_RETURN_IF_ERROR(Assign(weights.OptionalTable(prefix + "attn_q.bias", q), layer.bq));
  SLUICE_RETURN_IF_ERROR(Assign(weights.OptionalTable(prefix + "attn_k.bias", kv), layer.bk));
  SLUICE_RETURN_IF_ERROR(Assign(weights.OptionalTable(prefix + "attn_v.bias", kv), layer.bv));
  layer.rope = rope;
  layer.rope_style = config.rope_style;
  layer.rotary_dim = config.rotary_dim;
  layer.num_heads = int(heads.size());
  layer.scale = float(1.0 / std::sqrt(double(config.head_dim)));
  layer.eps = config.rms_eps;
  layer.kv_layer = index;
  layers.emplace_back(layer);
  return absl::OkStatus();
}

absl::Status AddMlp(const ModelConfig& config, int index, const RankOfSplit& of, Weights& weights,
                    std::vector<Layer>& layers) {
  const std::string prefix = absl::StrCat("blk.", index, ".");
  const Part ffn = of.split->ffn(of.rank);
  MlpLayer layer;
  layer.of = of;
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table(prefix + "ffn_norm.weight"), layer.norm));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "ffn_gate.weight", ffn), layer.gate));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "ffn_up.weight", ffn), layer.up));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "ffn_down.weight", of.split->hidden(of.rank)), layer.down));
  layer.activation = config.activation;
  layer.eps = config.rms_eps;
  layers.emplace_back(layer);
  return absl::OkStatus();
}

}  // namespace

struct Decoder::Impl {
  Impl(const ModelFile& file, const kernels::Backend& backend, const std::string& packed_folder, TensorSplit parts,
       const DecoderRank& me)
      : config(file.config()),
        kv_dtype(backend.kv_dtype()),
        own_pool(backend.has_own_memory()),
        split(std::move(parts)),
        rank(me),
        weights(&file, &backend, packed_folder,
                me.ranks > 1 ? absl::StrCat(".rank", me.rank, "of", me.ranks) : std::string()) {}

  absl::Status Build(int max_context);
  absl::Status Allocate(const kernels::Backend& backend, const DecoderLimits& limits);
  // The phases of a step.
  void Issue(const kernels::StepBatch& batch, kernels::KvPool& kv, float* logits, float* maxima,
             const std::function<void(int layers)>& after_layer);

  ModelConfig config;
  kernels::KvDType kv_dtype;
  const bool own_pool;  // of this rank's KV heads alone
  const TensorSplit split;
  const DecoderRank rank;
  Weights weights;
  const Weight* embedding = nullptr;
  std::vector<Layer> layers;
  const Weight* output_norm = nullptr;
  const Weight* head = nullptr;
  std::unique_ptr<kernels::Context> context;
  StepRows rows;
};

absl::Status Decoder::Impl::Build(int max_context) {
  const Weight* rope = nullptr;
  SLUICE_RETURN_IF_ERROR(Assign(RopeWeight(config, max_context, weights), rope));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table("token_embd.weight"), embedding));
  const RankOfSplit of{&split, rank.rank};
  for (int i = 0; i < config.num_layers; ++i) {
    SLUICE_RETURN_IF_ERROR(AddAttention(config, i, of, rope, weights, layers));
    SLUICE_RETURN_IF_ERROR(AddMlp(config, i, of, weights, layers));
  }
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table("output_norm.weight"), output_norm));
  const bool tied = !weights.Has("output.weight");
  const Part vocab = split.vocab(rank.rank);
  if (vocab.size() > 0) {
    SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(tied ? "token_embd.weight" : "output.weight", vocab), head));
  }
  return absl::OkStatus();
}

absl::Status Decoder::Impl::Allocate(const kernels::Backend& backend, const DecoderLimits& limits) {
  const int attention_width = config.num_heads * config.head_dim;
  const int q_width = int(split.heads(rank.rank).size()) * config.head_dim;
  const int kv_width = int(split.kv_heads(rank.rank).size()) * config.head_dim;
  kernels::ContextLimits c;
  c.max_rows = limits.max_step_tokens;
  c.max_seqs = limits.max_step_seqs;
  c.max_logits = limits.max_step_logits;
  c.max_ffn = config.ffn;
  c.max_hidden = std::max(config.hidden, attention_width);
  c.max_vocab = config.vocab;
  c.max_context = limits.max_context;
  c.max_blocks = kernels::BlocksFor(limits.max_context, limits.block_size);
  c.num_heads = int(split.heads(rank.rank).size());
  c.head_dim = config.head_dim;
  c.collective = rank.collective;
  c.first_kv_head = own_pool ? 0 : int(split.kv_heads(rank.rank).begin);
  c.num_kv_heads = int(split.kv_heads(rank.rank).size());
  SLUICE_RETURN_IF_ERROR(Assign(backend.NewContext(c), context));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(config.hidden, ActivationUse::kResidual), rows.x));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(q_width, ActivationUse::kProducts), rows.q));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(kv_width, ActivationUse::kProducts), rows.k));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(kv_width, ActivationUse::kProducts), rows.v));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(attention_width, ActivationUse::kProducts), rows.attn));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(config.ffn, ActivationUse::kProducts), rows.h));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelFile& file, const kernels::Backend& backend,
                                                         const DecoderLimits& limits, const std::string& packed_folder,
                                                         const DecoderRank& rank) {
  if (limits.max_context < 1 || limits.max_step_tokens < 1 || limits.max_step_seqs < 1) {
    return absl::InvalidArgumentError(absl::StrCat("decoder limits must be positive: max_context ", limits.max_context,
                                                   ", max_step_tokens ", limits.max_step_tokens, ", max_step_seqs ",
                                                   limits.max_step_seqs));
  }
  auto split = TensorSplit::Of(file.config(), rank.ranks);
  if (!split.ok()) return split.status();
  auto impl = std::make_unique<Impl>(file, backend, packed_folder, *std::move(split), rank);
  SLUICE_RETURN_IF_ERROR(impl->Build(limits.max_context));
  impl->weights.Finish();
  SLUICE_RETURN_IF_ERROR(impl->Allocate(backend, limits));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

kernels::KvLayout Decoder::kv_layout(int block_size) const {
  return {.num_layers = impl_->config.num_layers,
          .num_kv_heads = impl_->own_pool ? int(impl_->split.kv_heads(impl_->rank.rank).size())
                                          : impl_->config.num_kv_heads,
          .head_dim = impl_->config.head_dim,
          .block_size = block_size,
          .dtype = impl_->kv_dtype};
}

int Decoder::vocab() const {
  return impl_->config.vocab;
}

void Decoder::Impl::Issue(const kernels::StepBatch& batch, kernels::KvPool& kv, float* logits, float* maxima,
                          const std::function<void(int layers)>& after_layer) {
  context->Embed({.table = embedding, .scale = config.embed_scale, .x = rows.x.get()});
  for (const Layer& layer : layers) {
    std::visit([&](const auto& l) { l.Issue(*context, rows, kv); }, layer);
    // It has exchanged columns after it wrote its KV, so other ranks have written theirs too.
    const AttentionLayer* attention = std::get_if<AttentionLayer>(&layer);
    if (after_layer && attention != nullptr) {
      context->AwaitIssued();
      after_layer(attention->kv_layer + 1);
    }
  }
  if (batch.logit_rows.empty()) return;
  context->Head({.x = rows.x.get(),
                 .norm = output_norm,
                 .eps = config.rms_eps,
                 .head = head,
                 .first = split.vocab(rank.rank).begin,
                 .vocab = config.vocab,
                 .logits = logits,
                 .maxima = maxima});
  context->GatherLogits({.logits = logits, .maxima = maxima, .vocab = config.vocab, .borders = split.vocab_borders()});
  if (rank.rank == 0) context->Sample({.vocab = config.vocab});
}

kernels::SampleLimits Decoder::sample_limits() const {
  return impl_->context->sample_limits();
}

int64_t Decoder::bytes_to_host() const {
  return impl_->context->bytes_to_host();
}

absl::Status Decoder::Forward(const kernels::StepBatch& batch, kernels::KvPool& kv, float* logits, float* maxima,
                              const std::function<void(int layers)>& after_layer, bool record) {
  kernels::Context& context = *impl_->context;
  context.BeginStep(batch, kv.layout());
  const bool alike = record && !after_layer;  // who waits for layers cannot wait for all at once
  if (alike && context.Replay(logits, maxima)) return context.Finish();
  const bool capturing = alike && context.BeginCapture();
  impl_->Issue(batch, kv, logits, maxima, after_layer);
  if (capturing) context.EndCapture();
  return context.Finish();
}

}  // namespace sluice::engine
