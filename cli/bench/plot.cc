#include "cli/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::cli::bench {
namespace {

constexpr int kWidth = 900, kHeight = 560, kMargin = 55, kGap = 70;
constexpr int kCdfPoints = 200;     // of a curve
constexpr size_t kMostDots = 1000;  // of the time line, of each colour

// A rectangle of the picture, and what its edges stand for.
struct Panel {
  double left, top, width, height;
  double x_end, y_end;  // axes begin at 0

  double X(double x) const { return left + width * std::min(x / x_end, 1.0); }
  double Y(double y) const { return top + height * (1 - std::min(y / y_end, 1.0)); }
};

// 1, 2 or 5 times a power of ten, so that there are two to five steps.
double Step(double end) {
  const double power = std::pow(10, std::floor(std::log10(end / 2)));
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    if (end / (times * power) <= 5) return times * power;
  }
  return 10 * power;
}

void Text(std::string& svg, double x, double y, const char* anchor, const std::string& text) {
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text);
}

void Line(std::string& svg, double x1, double y1, double x2, double y2, const char* style) {
  absl::StrAppendFormat(&svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style);
}

void Axes(std::string& svg, const Panel& p, const std::string& x_name, const std::string& y_name) {
  absl::StrAppendFormat(&svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"frame\"/>\n", p.left,
                        p.top, p.width, p.height);
  for (double x = Step(p.x_end); x <= p.x_end * 1.0001; x += Step(p.x_end)) {
    Line(svg, p.X(x), p.top, p.X(x), p.top + p.height, "class=\"grid\"");
    Text(svg, p.X(x), p.top + p.height + 16, "middle", absl::StrFormat("%g", x));
  }
  for (double y = 0; y <= p.y_end * 1.0001; y += Step(p.y_end)) {
    Line(svg, p.left, p.Y(y), p.left + p.width, p.Y(y), "class=\"grid\"");
    Text(svg, p.left - 6, p.Y(y) + 4, "end", absl::StrFormat("%g", y));
  }
  Text(svg, p.left + p.width / 2, p.top + p.height + 34, "middle", x_name);
  Text(svg, p.left, p.top - 8, "start", y_name);
}

void Cdf(std::string& svg, Panel p, const std::string& name, std::vector<double> values, std::optional<double> slo) {
  std::sort(values.begin(), values.end());
  p.x_end = values.empty() ? 1 : std::max(values.back(), 1e-3);
  if (slo) p.x_end = std::max(p.x_end, *slo * 1.05);
  p.y_end = 100;
  Axes(svg, p, absl::StrCat(name, ", ms"), "% of requests");
  if (slo) Line(svg, p.X(*slo), p.top, p.X(*slo), p.top + p.height, "class=\"slo\"");
  if (values.empty()) return;
  svg += "<polyline class=\"curve\" points=\"";
  for (int i = 0; i <= kCdfPoints; ++i) {
    const double share = double(i) / kCdfPoints;
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", p.X(Percentile(values, share)), p.Y(100 * share));
  }
  svg += "\"/>\n";
}

void TimeLine(std::string& svg, Panel p, const RunReport& run) {
  p.x_end = 1e-3;
  p.y_end = run.slo.ttft_ms ? *run.slo.ttft_ms * 1.05 : 1e-3;
  std::vector<const Record*> sent;
  for (const Record& record : run.records) {
    if (record.sent_s < 0) continue;
    sent.push_back(&record);
    p.x_end = std::max(p.x_end, record.scheduled_s);
    if (record.outcome == Outcome::kDone) p.y_end = std::max(p.y_end, TtftMs(record));
  }
  Axes(svg, p, "scheduled arrival, s", "TTFT, ms; failed and abandoned requests in red at the top");
  if (run.slo.ttft_ms)
    Line(svg, p.left, p.Y(*run.slo.ttft_ms), p.left + p.width, p.Y(*run.slo.ttft_ms), "class=\"slo\"");
  for (const bool good : {true, false}) {
    std::vector<const Record*> dots;
    std::copy_if(sent.begin(), sent.end(), std::back_inserter(dots),
                 [good](const Record* r) { return (r->outcome == Outcome::kDone) == good; });
    const size_t step = (dots.size() + kMostDots - 1) / kMostDots;  // those between say the same
    for (size_t i = 0; i < dots.size(); i += step) {
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.6\"%s/>\n", p.X(dots[i]->scheduled_s),
                            good ? p.Y(TtftMs(*dots[i])) : p.top, good ? "" : " class=\"bad\"");
    }
  }
}

}  // namespace

std::string PlotSvg(const RunReport& run) {
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
      "<style>text{font:12px sans-serif;fill:#333}.frame{fill:none;stroke:#333}.grid{stroke:#ddd}"
      ".curve{fill:none;stroke:#1668a8;stroke-width:2}.slo{stroke:#c33;stroke-dasharray:5 4}"
      "circle{fill:#1668a8}.bad{fill:#c33}</style>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
      kWidth, kHeight, kWidth, kHeight, kWidth, kHeight);
  std::vector<double> ttft, tpot;
  for (const Record& record : run.records) {
    if (record.sent_s < 0 || record.outcome != Outcome::kDone) continue;
    ttft.push_back(TtftMs(record));
    if (record.output_tokens >= 2) tpot.push_back(TpotMs(record));
  }
  const double half = (kWidth - 2 * kMargin - kGap) / 2.0, height = (kHeight - 2 * kMargin - kGap) / 2.0;
  Cdf(svg, {kMargin, 40, half, height, 1, 1}, "TTFT", std::move(ttft), run.slo.ttft_ms);
  Cdf(svg, {kMargin + half + kGap, 40, half, height, 1, 1}, "TPOT", std::move(tpot), run.slo.tpot_ms);
  TimeLine(svg, {kMargin, 40 + height + kGap, kWidth - 2.0 * kMargin, height, 1, 1}, run);
  return svg + "</svg>\n";
}

}  // namespace sluice::cli::bench
