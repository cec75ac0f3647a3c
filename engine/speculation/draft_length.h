// How many drafts a sequence's next step should carry, from what became of those before. Pure; counts in tokens, knows
// no time, so the same history gives the same lengths. It never changes a token, only how many a step yields.
//
// Rule:
//  - The acceptance a is estimated as accepted / tested, where a refused draft is tested and those after it are not.
//    Old counts fade by a tenth at every report. A start begins with 1 of 2, so rows that cost half a step or more are
//    not tried at all.
//  - The length is the one with the best expected speed-up at a, where a draft row costs `row_cost` of a step.
//  - If that length is 0, drafting pauses: 16 tokens the first time, doubled up to 1,024 after every stretch that lost
//    more than it gained (a gained stretch starts again with 16).
//  - After a pause the estimate starts afresh just above break-even, so that one draft is tried: if it is refused, the
//    next pause begins; if it is accepted, longer ones follow.
// So where drafts never fit, a sequence loses less than one step at its start and one row per pause.
#pragma once

namespace sluice::engine {

class DraftLength {
 public:
  // max_drafts >= 0. row_cost >= 0: what one more row adds to a step, as a share of the step.
  DraftLength(int max_drafts, double row_cost);

  // For a sequence of `position` tokens: in [0, max_drafts].
  int Next(int position) const;

  // A step of a sequence that had `position` tokens verified `drafted` drafts, the first `accepted` of which held.
  void Report(int position, int drafted, int accepted);

  double acceptance() const { return accepted_ / tested_; }
  bool pauses(int position) const { return position < resume_at_; }

  // The cost changes with the size of the batch: of B rows it is what one more costs over what each of the B costs.
  void set_row_cost(double row_cost) { row_cost_ = row_cost; }

 private:
  int max_drafts_;
  double row_cost_;
  double tested_ = 2.0, accepted_ = 1.0;
  double gain_ = 0.0;  // of this stretch, in steps
  int resume_at_ = 0;
  int pause_ = 0;  // the last one; 0: none yet, or the stretch before it gained
};

}  // namespace sluice::engine
