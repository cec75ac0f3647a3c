// A run as a picture: the shares of requests by TTFT and by TPOT, and the TTFTs along the time. Plain SVG. Pure.
#pragma once

#include <string>

#include "cli/bench/report.h"

namespace sluice::cli::bench {

std::string PlotSvg(const RunReport& run);

}  // namespace sluice::cli::bench
