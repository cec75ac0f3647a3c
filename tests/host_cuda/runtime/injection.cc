#include "tests/host_cuda/runtime/injection.h"

#include <cstdlib>
#include <sstream>

namespace host_cuda {

std::string FailurePlan::Set(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
  calls_.clear();
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty()) continue;
    const size_t colon = word.find(':'), equals = word.find('=');
    if (colon == std::string::npos || equals == std::string::npos || equals < colon) {
      return "'" + word + "' is not NAME:N=ERROR";
    }
    Entry entry;
    char* end = nullptr;
    const std::string count = word.substr(colon + 1, equals - colon - 1);
    entry.first = std::strtoull(count.c_str(), &end, 10);
    entry.later_too = *end == '+';
    if (entry.first == 0 || (*end != '\0' && *end != '+')) return "'" + word + "': N must be a number from 1 on";
    entry.error = word.substr(equals + 1);
    entries_[word.substr(0, colon)].push_back(entry);
  }
  return {};
}

std::optional<std::string> FailurePlan::Next(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  const uint64_t n = ++calls_[name];
  for (const Entry& entry : found->second) {
    if (n == entry.first || (entry.later_too && n > entry.first)) return entry.error;
  }
  return std::nullopt;
}

FailurePlan& TheFailurePlan() {
  static FailurePlan& plan = *new FailurePlan;
  return plan;
}

}  // namespace host_cuda
