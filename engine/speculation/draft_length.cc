#include "engine/speculation/draft_length.h"

#include <glog/logging.h>

#include <algorithm>

#include "engine/speculation/expected_gain.h"

namespace sluice::engine {
namespace {

constexpr double kFade = 0.9;
constexpr int kFirstPause = 16, kLongestPause = 1024;
constexpr double kRestart = 1.5;  // times break-even

}  // namespace

DraftLength::DraftLength(int max_drafts, double row_cost) : max_drafts_(max_drafts), row_cost_(row_cost) {
  CHECK_GE(max_drafts, 0);
  CHECK_GE(row_cost, 0.0);
}

int DraftLength::Next(int position) const {
  return pauses(position) ? 0 : BestDraftLength(acceptance(), row_cost_, max_drafts_);
}

void DraftLength::Report(int position, int drafted, int accepted) {
  CHECK(0 <= accepted && accepted <= drafted);
  if (drafted == 0) return;
  tested_ = tested_ * kFade + accepted + (accepted < drafted ? 1 : 0);
  accepted_ = accepted_ * kFade + accepted;
  gain_ += accepted - row_cost_ * drafted;
  if (BestDraftLength(acceptance(), row_cost_, max_drafts_) > 0) return;
  pause_ = gain_ > 0.0 || pause_ == 0 ? kFirstPause : std::min(2 * pause_, kLongestPause);
  resume_at_ = position + pause_;
  tested_ = 1.0;
  accepted_ = std::min(1.0, kRestart * row_cost_);
  gain_ = 0.0;
}

}  // namespace sluice::engine
