// The files of router/page/, inside the program.
#pragma once

#include <string_view>
#include <vector>

namespace sluice::router {

struct PageFile {
  std::string_view name;
  std::string_view text;
};

std::vector<PageFile> PageFiles();

}  // namespace sluice::router
