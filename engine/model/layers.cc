#include "engine/model/layers.h"

namespace sluice::engine {

void AttentionLayer::Issue(kernels::Context& context, StepRows& rows, kernels::KvPool& kv) const {
  context.NormQkv({.x = rows.x.get(),
                   .norm = norm,
                   .eps = eps,
                   .wq = wq,
                   .wk = wk,
                   .wv = wv,
                   .bq = bq,
                   .bk = bk,
                   .bv = bv,
                   .q = rows.q.get(),
                   .k = rows.k.get(),
                   .v = rows.v.get()});
  context.RopeKv({.q = rows.q.get(),
                  .k = rows.k.get(),
                  .v = rows.v.get(),
                  .rope = rope,
                  .rotary_dim = rotary_dim,
                  .style = rope_style,
                  .kv = &kv,
                  .layer = kv_layer});
  context.Attention({.q = rows.q.get(),
                     .out = rows.attn.get(),
                     .first_head = int(of.split->heads(of.rank).begin),
                     .kv = &kv,
                     .layer = kv_layer,
                     .num_heads = num_heads,
                     .scale = scale});
  context.Gather({.rows = rows.attn.get(), .borders = of.split->attention_borders()});
  context.Project({.in = rows.attn.get(), .w = wo, .x = rows.x.get(), .column = of.split->hidden(of.rank).begin});
  context.Gather({.rows = rows.x.get(), .borders = of.split->hidden_borders()});
}

void MlpLayer::Issue(kernels::Context& context, StepRows& rows, kernels::KvPool&) const {
  context.GateUp({.x = rows.x.get(),
                  .norm = norm,
                  .eps = eps,
                  .gate = gate,
                  .up = up,
                  .activation = activation,
                  .h = rows.h.get(),
                  .column = of.split->ffn(of.rank).begin});
  context.Gather({.rows = rows.h.get(), .borders = of.split->ffn_borders()});
  context.Project({.in = rows.h.get(), .w = down, .x = rows.x.get(), .column = of.split->hidden(of.rank).begin});
  context.Gather({.rows = rows.x.get(), .borders = of.split->hidden_borders()});
}

}  // namespace sluice::engine
