#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "engine/text/utf8.h"

namespace sluice::engine {
namespace {

// How many bytes of `pattern` match after `c`, when `matched` (< pattern.size()) did before it: Knuth, Morris and
// Pratt.
size_t Advance(const std::string& pattern, const std::vector<size_t>& border, size_t matched, char c) {
  while (matched > 0 && pattern[matched] != c) matched = border[matched - 1];
  return pattern[matched] == c ? matched + 1 : 0;
}

std::vector<size_t> Borders(const std::string& pattern) {
  std::vector<size_t> border(pattern.size(), 0);
  for (size_t i = 1; i < pattern.size(); ++i) border[i] = Advance(pattern, border, border[i - 1], pattern[i]);
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    std::vector<size_t> border = Borders(stop);
    stops_.push_back({std::move(stop), std::move(border)});
  }
}

size_t StopMatcher::Step(char c) {
  size_t complete = 0;
  for (Stop& stop : stops_) {
    stop.matched = Advance(stop.text, stop.border, stop.matched, c);
    if (stop.matched == stop.text.size()) complete = std::max(complete, stop.matched);
  }
  return complete;
}

StopMatcher::Result StopMatcher::Add(std::string_view text) {
  if (stopped_) return {.text = {}, .stopped = true};
  for (const char c : text) {
    held_.push_back(c);
    const size_t stop = Step(c);
    if (stop == 0) continue;
    stopped_ = true;
    held_.resize(held_.size() - stop);
    held_.resize(held_.size() - IncompleteTail(held_));
    return {.text = std::exchange(held_, {}), .stopped = true};
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string ready = held_.substr(0, held_.size() - keep);
  ready.resize(ready.size() - IncompleteTail(ready));
  held_.erase(0, ready.size());
  return {.text = std::move(ready), .stopped = false};
}

std::string StopMatcher::Flush() {
  return stopped_ ? std::string() : std::exchange(held_, {});
}

}  // namespace sluice::engine
