#include "kernels/cpu/gathering.h"

#include <vector>

#include "glog/logging.h"

namespace sluice::kernels::cpu {

void Gathering::Gather(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders, Collective::To to) {
  if (collective_ == nullptr || !status_.ok() || count == 0) return;
  CHECK_EQ(int(borders.size()), collective_->size() + 1);
  status_ = collective_->Gather(rows, ld, count, borders, to);
}

void Gathering::Rows(const CpuActivation& rows, int64_t count, std::span<const int64_t> borders) {
  Gather(rows.row(0), rows.ld(), count, borders, Collective::To::kAll);
}

void Gathering::Logits(const GatherLogitsParams& p, int64_t count) {
  Gather(p.logits, p.vocab, count, p.borders, Collective::To::kRank0);
  if (p.maxima == nullptr) return;
  std::vector<int64_t> blocks;
  for (const int64_t border : p.borders) blocks.push_back(NumLogitBlocks(border));
  Gather(p.maxima, NumLogitBlocks(p.vocab), count, blocks, Collective::To::kRank0);
}

}  // namespace sluice::kernels::cpu
