// Settings out of a YAML text, each with the line where it stands. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::config {

struct Setting {
  std::string key;  // with dashes, as flags have them
  std::vector<std::string> values;
  bool list = false;
  int line = 0;  // from 1 on
};

// Of one server: those of its sections, later sections over earlier ones; or all, where the file has no sections.
// INVALID_ARGUMENT begins with FILE:LINE.
absl::StatusOr<std::vector<Setting>> ReadSettings(const std::string& file, const std::string& text,
                                                  const std::vector<std::string>& sections);

// A scalar as YAML reads it back to the same text.
std::string Quoted(std::string_view text);

}  // namespace sluice::config
