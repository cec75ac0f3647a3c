// absl::StrCat that takes std::string_view too: Debian's Abseil has a string_view type of its own.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::engine {

template <typename T>
auto ForAbseil(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view> || std::is_same_v<T, std::string>) {
    return absl::string_view(value.data(), value.size());
  } else {
    return value;
  }
}

template <typename... Args>
std::string Concat(const Args&... args) {
  return absl::StrCat(ForAbseil(args)...);
}

}  // namespace sluice::engine
