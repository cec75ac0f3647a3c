#include "kernels/cpu/embed.h"

#include "glog/logging.h"
#include "kernels/cpu/cpu_storage.h"

namespace sluice::kernels::cpu {

void EmbedRows(const EmbedParams& p, const StepBatch& batch, const KernelTable& kernels, ThreadPool& pool) {
  constexpr int64_t kRowGrain = 16;  // below this a hand-over costs more than it saves
  const auto* table = static_cast<const CpuWeight*>(p.table);
  const auto* x = static_cast<const CpuActivation*>(p.x);
  CHECK_EQ(table->cols(), x->cols());
  pool.RunRanges(batch.rows(), kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int32_t token = batch.tokens[size_t(row)];
      CHECK(token >= 0 && token < table->rows()) << "token " << token;
      float* out = x->row(row);
      kernels.dequantize(table->type(), table->row(token), table->cols(), out);
      if (p.scale == 1.0f) continue;
      for (int64_t i = 0; i < table->cols(); ++i) out[i] *= p.scale;
    }
  });
}

}  // namespace sluice::kernels::cpu
