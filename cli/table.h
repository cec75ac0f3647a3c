// Rows as aligned columns. Pure.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli {

using Row = std::vector<std::string>;

// A line for each row; all have as many cells as the first one.
std::string RenderTable(const std::vector<Row>& rows);

}  // namespace sluice::cli
