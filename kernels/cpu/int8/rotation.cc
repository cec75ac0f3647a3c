#include "kernels/cpu/int8/rotation.h"

#include "glog/logging.h"

namespace sluice::kernels::cpu {

Rotation PlanRotation(int64_t cols) {
  CHECK_GE(cols, 1);
  Rotation r;
  r.vectors = (cols + 15) / 16;
  r.gain = 16;
  int64_t rest = r.vectors, stride = 1;
  const auto add = [&](int64_t radix, bool hadamard) {
    CHECK_LT(r.stages, kMaxRotationStages);
    r.stage[size_t(r.stages++)] = {int32_t(radix), int32_t(stride), hadamard};
    if (hadamard) r.gain *= double(radix);
    stride *= radix;
    rest /= radix;
  };
  for (const int radix : {12, 20, 8, 4, 2}) {
    while (rest % radix == 0) add(radix, true);
  }
  if (rest > 1) add(rest, false);
  return r;
}

}  // namespace sluice::kernels::cpu
