#include "tests/host_cuda/runtime/injection.h"

#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>

#include "tests/host_cuda/runtime/runtime.h"

namespace host_cuda {
namespace {

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// HOST_CUDA_FAIL_FILE, looked at before each call that may fail.
class PlanFile {
 public:
  void Look(FailurePlan& plan) {
    if (path_ == nullptr) return;
    std::lock_guard<std::mutex> lock(mutex_);
    struct stat now = {};
    const bool there = stat(path_, &now) == 0;
    const Version version{there, now.st_ino, now.st_mtim.tv_sec, now.st_mtim.tv_nsec};
    if (version == version_) return;
    version_ = version;
    std::ifstream in(path_);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string wrong = plan.Set(text.substr(0, text.find('\n')));
    if (wrong.empty()) return;
    std::fprintf(stderr, "host_cuda: %s: %s\n", path_, wrong.c_str());
    std::abort();
  }

 private:
  using Version = std::tuple<bool, ino_t, time_t, long>;
  const char* const path_ = std::getenv("HOST_CUDA_FAIL_FILE");
  std::mutex mutex_;
  Version version_{};
};

}  // namespace

std::string FailurePlan::Parse(const std::string& word, Entry* entry) {
  const size_t colon = word.find(':'), equals = word.find('=');
  if (colon == std::string::npos || equals == std::string::npos || equals < colon) {
    return "'" + word + "' is not NAME:N=ERROR";
  }
  std::string name = word.substr(0, colon);
  if (const size_t at = name.find('@'); at != std::string::npos) {
    if (!IsNumber(name.substr(at + 1))) return "'" + word + "': the device must be a number";
    entry->device = std::atoi(name.c_str() + at + 1);
    name.resize(at);
  }
  if (const size_t slash = name.find('/'); slash != std::string::npos) {
    entry->detail = name.substr(slash + 1);
    name.resize(slash);
  }
  entry->name = name;
  std::string count = word.substr(colon + 1, equals - colon - 1);
  entry->later_too = count.ends_with('+');
  if (entry->later_too) count.pop_back();
  entry->first = IsNumber(count) ? std::strtoull(count.c_str(), nullptr, 10) : 0;
  if (entry->first == 0) return "'" + word + "': N must be a number from 1 on";
  entry->error = word.substr(equals + 1);
  return {};
}

std::string FailurePlan::Set(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty()) continue;
    if (std::string wrong = Parse(word, &entries_.emplace_back()); !wrong.empty()) return wrong;
  }
  return {};
}

bool FailurePlan::Matches(const Entry& entry, const Fallible& what) {
  if (entry.name != what.name || (entry.device >= 0 && entry.device != what.device)) return false;
  if (entry.detail.empty()) return true;
  if (IsNumber(entry.detail)) return what.bytes >= std::strtoull(entry.detail.c_str(), nullptr, 10);
  return what.detail.find(entry.detail) != std::string_view::npos;
}

std::optional<std::string> FailurePlan::Next(const Fallible& what) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::optional<std::string> happens;
  for (Entry& entry : entries_) {
    if (!Matches(entry, what)) continue;
    const uint64_t n = ++entry.seen;
    if (!happens && (n == entry.first || (entry.later_too && n > entry.first))) happens = entry.error;
  }
  return happens;
}

FailurePlan& TheFailurePlan() {
  static FailurePlan& plan = *new FailurePlan;
  return plan;
}

std::optional<std::string> FailsOnPurpose(std::string_view name, std::string_view detail, uint64_t bytes) {
  static PlanFile& file = *new PlanFile;
  file.Look(TheFailurePlan());
  const Fallible what{name, detail, bytes, rt::CurrentDevice()};
  const auto happens = TheFailurePlan().Next(what);
  if (!happens) return std::nullopt;
  std::fprintf(stderr, "host_cuda: on purpose, device %d, %.*s%s%.*s: %s\n", what.device, int(name.size()), name.data(),
               detail.empty() ? "" : " of ", int(detail.size()), detail.data(), happens->c_str());
  std::fflush(stderr);
  if (*happens == "kill") (void)raise(SIGKILL);
  return happens;
}

}  // namespace host_cuda
