#include "cli/bench/sse.h"

#include <utility>

namespace sluice::cli::bench {

std::vector<std::string> SseParser::Add(std::string_view bytes) {
  std::vector<std::string> events;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end));
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    TakeLine(line_, events);
    line_.clear();
  }
  return events;
}

void SseParser::TakeLine(std::string_view line, std::vector<std::string>& events) {
  if (line.empty()) {
    if (has_data_) events.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
    return;
  }
  constexpr std::string_view kData = "data:";
  if (line.substr(0, kData.size()) != kData) return;
  line.remove_prefix(kData.size());
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace sluice::cli::bench
