#include "engine/model/rope_table.h"

#include <glog/logging.h>

#include "engine/deterministic_math.h"

namespace sluice::engine {

std::vector<float> MakeRopeTable(int positions, int rotary_dim, double theta, std::span<const float> factors) {
  const int pairs = rotary_dim / 2;
  CHECK_EQ(rotary_dim % 2, 0);
  CHECK(factors.empty() || int(factors.size()) == pairs);
  std::vector<double> frequency(pairs);
  for (int i = 0; i < pairs; ++i) {
    frequency[i] = DetExp(-2.0 * i / rotary_dim * DetLog(theta));
    if (!factors.empty()) frequency[i] /= double(factors[i]);
  }
  std::vector<float> table(size_t(positions) * rotary_dim);
  for (int position = 0; position < positions; ++position) {
    float* row = table.data() + size_t(position) * rotary_dim;
    for (int i = 0; i < pairs; ++i) {
      const auto [sine, cosine] = DetSinCos(position * frequency[i]);
      row[i] = float(cosine);
      row[pairs + i] = float(sine);
    }
  }
  return table;
}

}  // namespace sluice::engine
