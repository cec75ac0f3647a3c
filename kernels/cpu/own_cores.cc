#include "kernels/cpu/own_cores.h"

namespace sluice::kernels::cpu {

std::vector<int> OwnCores(const cpu_set_t& allowed, int threads, int installed) {
  std::vector<int> cores;
  if (CPU_COUNT(&allowed) != threads || threads >= installed) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

}  // namespace sluice::kernels::cpu
