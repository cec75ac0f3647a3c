// The project's version, as CMakeLists.txt states it.
#pragma once

namespace sluice::worker {

inline constexpr char kVersion[] = SLUICE_VERSION;

}  // namespace sluice::worker
