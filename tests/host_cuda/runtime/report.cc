#include "tests/host_cuda/runtime/report.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace host_cuda {
namespace {

constexpr size_t kKept = 256;

struct Kept {
  std::mutex mutex;
  std::vector<std::string> texts;
};

// Never destroyed: device threads outlive main.
Kept& TheKept() {
  static Kept& kept = *new Kept;
  return kept;
}

}  // namespace

void Report(const std::string& text) {
  std::fprintf(stderr, "host_cuda: %s\n", text.c_str());
  std::fflush(stderr);
  std::lock_guard<std::mutex> lock(TheKept().mutex);
  if (TheKept().texts.size() < kKept) TheKept().texts.push_back(text);
}

std::vector<std::string> TakeReports() {
  std::lock_guard<std::mutex> lock(TheKept().mutex);
  return std::exchange(TheKept().texts, {});
}

}  // namespace host_cuda
