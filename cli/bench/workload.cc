#include "cli/bench/workload.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "simulation/rng.h"

namespace sluice::cli::bench {
namespace {

using simulation::Mix;
using simulation::Rng;

// What a stream of random tokens is for; streams of different purposes and numbers are unrelated.
enum Purpose : uint64_t { kOwn = 1, kPrefix, kBlock, kLengths };

void Append(std::vector<int32_t>& prompt, int count, TokenRange tokens, uint64_t seed, Purpose purpose,
            uint64_t number) {
  Rng rng(Mix(Mix(seed, purpose), number));
  for (int i = 0; i < count; ++i) prompt.push_back(rng.Between(tokens.first, tokens.end - 1));
}

int Draw(const Lengths& lengths, Rng& rng) {
  return std::max(1, rng.Between(lengths.mean - lengths.range, lengths.mean + lengths.range));
}

std::vector<int32_t> TracePrompt(const simulation::TraceRequest& from, int length, int divide, TokenRange tokens,
                                 uint64_t seed, uint64_t number) {
  // The last block is not whole: what stands there is the request's own.
  const int own = from.blocks.empty() ? length : std::min(length, 8);
  const int per_block = std::max(1, simulation::kTraceBlock / divide);
  std::vector<int32_t> prompt;
  for (const uint64_t block : from.blocks) {
    const int left = length - own - int(prompt.size());
    if (left <= 0) break;
    Append(prompt, std::min(left, per_block), tokens, seed, kBlock, block);
  }
  Append(prompt, length - int(prompt.size()), tokens, seed, kOwn, number);
  return prompt;
}

}  // namespace

absl::StatusOr<Lengths> ParseLengths(const std::string& text, const std::string& flag) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Lengths lengths;
  const bool good = parts.size() <= 2 && absl::SimpleAtoi(parts[0], &lengths.mean) && lengths.mean >= 1 &&
                    (parts.size() == 1 || absl::SimpleAtoi(parts[1], &lengths.range)) && lengths.range >= 0 &&
                    lengths.range < lengths.mean && lengths.mean <= 1 << 24;
  if (good) return lengths;
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": \"", text, "\" is not MEAN or MEAN:RANGE, such as 128:32 for 96 to 160"));
}

TokenRange OrdinaryTokens(int vocabulary) {
  return {vocabulary > 2000 ? 500 : std::min(vocabulary - 1, 3), vocabulary};
}

absl::StatusOr<std::vector<PlannedRequest>> MakeRandom(const RandomWorkload& workload, int count, TokenRange tokens,
                                                       int context, uint64_t seed) {
  const int longest = workload.input.mean + workload.input.range + workload.shared_prefix_tokens;
  const int answer = workload.output.mean + workload.output.range;
  if (context > 0 && longest + answer > context) {
    return absl::InvalidArgumentError(absl::StrCat("--input-tokens: prompts of up to ", longest,
                                                   " tokens and answers of up to ", answer,
                                                   " do not fit into the context of ", context));
  }
  Rng rng(Mix(seed, kLengths));
  std::vector<PlannedRequest> requests;
  for (int i = 0; i < count; ++i) {
    PlannedRequest request;
    if (workload.shared_prefix_tokens > 0) {
      Append(request.prompt, workload.shared_prefix_tokens, tokens, seed, kPrefix,
             rng.Below(uint64_t(std::max(1, workload.prefixes))));
    }
    Append(request.prompt, Draw(workload.input, rng), tokens, seed, kOwn, uint64_t(i));
    request.max_tokens = Draw(workload.output, rng);
    requests.push_back(std::move(request));
  }
  return requests;
}

TraceWorkload MakeFromTrace(const std::vector<simulation::TraceRequest>& trace, int count, int divide, double speed,
                            TokenRange tokens, int context, uint64_t seed) {
  if (context <= 0) context = std::numeric_limits<int>::max();
  TraceWorkload workload;
  for (size_t i = 0; i < trace.size() && int(i) < count; ++i) {
    const int prompt = std::max(1, trace[i].prompt_tokens / divide);
    const int answer = std::max(2, trace[i].answer_tokens / divide);
    PlannedRequest request;
    // A long answer may take half of the context; the prompt has what is left.
    request.max_tokens = std::min(answer, std::max(1, context / 2));
    const int length = std::min(prompt, context - request.max_tokens);
    workload.cut += length < prompt || request.max_tokens < answer;
    request.prompt = TracePrompt(trace[i], length, divide, tokens, seed, i);
    workload.requests.push_back(std::move(request));
    workload.at_s.push_back(trace[i].at_s / speed);
  }
  return workload;
}

}  // namespace sluice::cli::bench
