// The embedded files of router/page/; cmake/embed_files.cmake writes their definition.
#pragma once

#include <span>
#include <string_view>

namespace sluice::router {

struct PageFile {
  std::string_view name;
  std::string_view text;
};

std::span<const PageFile> PageFiles();

}  // namespace sluice::router
