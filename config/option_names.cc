#include "config/option_names.h"

#include <algorithm>

namespace sluice::config {
namespace {

int Distance(std::string_view a, std::string_view b) {
  // rows[i][j]: of the first i characters of a and the first j of b.
  std::vector<std::vector<int>> rows(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = int(i + j);
        continue;
      }
      const int other = a[i - 1] != b[j - 1];
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string WithDashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::string Nearest(std::string_view name, const std::vector<std::string>& names) {
  const int most = std::max(1, int(name.size()) / 3);
  std::string nearest;
  int least = most + 1;
  for (const std::string& candidate : names) {
    const int distance = Distance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace sluice::config
