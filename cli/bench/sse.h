// Server-sent events out of bytes as they come. Pure. Only `data` lines matter here; those of one event are joined with
// line breaks, comments and other fields are skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli::bench {

class SseParser {
 public:
  // Takes some bytes; returns the data of the events that they complete.
  std::vector<std::string> Add(std::string_view bytes);

 private:
  void TakeLine(std::string_view line, std::vector<std::string>& events);

  std::string line_;  // not whole yet
  std::string data_;
  bool has_data_ = false;
};

}  // namespace sluice::cli::bench
