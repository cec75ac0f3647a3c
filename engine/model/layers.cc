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
                     .kv = &kv,
                     .layer = kv_layer,
                     .num_heads = num_heads,
                     .scale = scale});
  context.Output({.attn = rows.attn.get(), .wo = wo, .x = rows.x.get()});
}

void MlpLayer::Issue(kernels::Context& context, StepRows& rows, kernels::KvPool&) const {
  context.Mlp(
      {.x = rows.x.get(), .norm = norm, .eps = eps, .gate = gate, .up = up, .down = down, .activation = activation});
}

}  // namespace sluice::engine
