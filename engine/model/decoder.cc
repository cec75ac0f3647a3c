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

absl::Status AddAttention(const ModelConfig& config, int index, const Weight* rope, Weights& weights,
                          std::vector<Layer>& layers) {
  const std::string prefix = absl::StrCat("blk.", index, ".");
  AttentionLayer layer;
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table(prefix + "attn_norm.weight"), layer.norm));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_q.weight"), layer.wq));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_k.weight"), layer.wk));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_v.weight"), layer.wv));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "attn_output.weight"), layer.wo));
  SLUICE_RETURN_IF_ERROR(Assign(weights.OptionalTable(prefix + "attn_q.bias"), layer.bq));
  SLUICE_RETURN_IF_ERROR(Assign(weights.OptionalTable(prefix + "attn_k.bias"), layer.bk));
  SLUICE_RETURN_IF_ERROR(Assign(weights.OptionalTable(prefix + "attn_v.bias"), layer.bv));
  layer.rope = rope;
  layer.rope_style = config.rope_style;
  layer.rotary_dim = config.rotary_dim;
  layer.num_heads = config.num_heads;
  layer.scale = float(1.0 / std::sqrt(double(config.head_dim)));
  layer.eps = config.rms_eps;
  layer.kv_layer = index;
  layers.emplace_back(layer);
  return absl::OkStatus();
}

absl::Status AddMlp(const ModelConfig& config, int index, Weights& weights, std::vector<Layer>& layers) {
  const std::string prefix = absl::StrCat("blk.", index, ".");
  MlpLayer layer;
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table(prefix + "ffn_norm.weight"), layer.norm));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "ffn_gate.weight"), layer.gate));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "ffn_up.weight"), layer.up));
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(prefix + "ffn_down.weight"), layer.down));
  layer.activation = config.activation;
  layer.eps = config.rms_eps;
  layers.emplace_back(layer);
  return absl::OkStatus();
}

}  // namespace

struct Decoder::Impl {
  Impl(const ModelFile& file, const kernels::Backend& backend, const std::string& packed_folder)
      : config(file.config()), kv_dtype(backend.kv_dtype()), weights(&file, &backend, packed_folder) {}

  absl::Status Build(int max_context);
  absl::Status Allocate(const kernels::Backend& backend, const DecoderLimits& limits);

  ModelConfig config;
  kernels::KvDType kv_dtype;
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
  for (int i = 0; i < config.num_layers; ++i) {
    SLUICE_RETURN_IF_ERROR(AddAttention(config, i, rope, weights, layers));
    SLUICE_RETURN_IF_ERROR(AddMlp(config, i, weights, layers));
  }
  SLUICE_RETURN_IF_ERROR(Assign(weights.Table("output_norm.weight"), output_norm));
  const bool tied = !weights.Has("output.weight");
  SLUICE_RETURN_IF_ERROR(Assign(weights.Linear(tied ? "token_embd.weight" : "output.weight"), head));
  return absl::OkStatus();
}

absl::Status Decoder::Impl::Allocate(const kernels::Backend& backend, const DecoderLimits& limits) {
  const int q_width = config.num_heads * config.head_dim, kv_width = config.num_kv_heads * config.head_dim;
  kernels::ContextLimits c;
  c.max_rows = limits.max_step_tokens;
  c.max_seqs = limits.max_step_seqs;
  c.max_logits = limits.max_step_logits;
  c.max_ffn = config.ffn;
  c.max_hidden = std::max(config.hidden, q_width);
  SLUICE_RETURN_IF_ERROR(Assign(backend.NewContext(c), context));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(config.hidden), rows.x));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(q_width), rows.q));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(kv_width), rows.k));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(kv_width), rows.v));
  SLUICE_RETURN_IF_ERROR(Assign(context->NewActivation(q_width), rows.attn));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelFile& file, const kernels::Backend& backend,
                                                         const DecoderLimits& limits,
                                                         const std::string& packed_folder) {
  if (limits.max_context < 1 || limits.max_step_tokens < 1 || limits.max_step_seqs < 1) {
    return absl::InvalidArgumentError(absl::StrCat("decoder limits must be positive: max_context ", limits.max_context,
                                                   ", max_step_tokens ", limits.max_step_tokens, ", max_step_seqs ",
                                                   limits.max_step_seqs));
  }
  auto impl = std::make_unique<Impl>(file, backend, packed_folder);
  SLUICE_RETURN_IF_ERROR(impl->Build(limits.max_context));
  impl->weights.Finish();
  SLUICE_RETURN_IF_ERROR(impl->Allocate(backend, limits));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

kernels::KvLayout Decoder::kv_layout(int block_size) const {
  return {.num_layers = impl_->config.num_layers,
          .num_kv_heads = impl_->config.num_kv_heads,
          .head_dim = impl_->config.head_dim,
          .block_size = block_size,
          .dtype = impl_->kv_dtype};
}

int Decoder::vocab() const {
  return impl_->config.vocab;
}

absl::Status Decoder::Forward(const kernels::StepBatch& batch, kernels::KvPool& kv, float* logits, float* maxima) {
  kernels::Context& context = *impl_->context;
  StepRows& rows = impl_->rows;
  context.BeginStep(batch, kv.layout());
  context.Embed({.table = impl_->embedding, .scale = impl_->config.embed_scale, .x = rows.x.get()});
  for (const Layer& layer : impl_->layers) {
    std::visit([&](const auto& l) { l.Issue(context, rows, kv); }, layer);
  }
  if (!batch.logit_rows.empty()) {
    context.Head({.x = rows.x.get(),
                  .norm = impl_->output_norm,
                  .eps = impl_->config.rms_eps,
                  .head = impl_->head,
                  .logits = logits,
                  .maxima = maxima});
  }
  return context.Finish();
}

}  // namespace sluice::engine
