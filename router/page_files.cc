#include "router/page_files.h"

// router/CMakeLists.txt embeds them (sluice_embed).
namespace sluice::embedded {
extern const std::string_view kPageIndexHtml;
extern const std::string_view kPagePageCss;
extern const std::string_view kPageIconSvg;
extern const std::string_view kPageMainJs;
extern const std::string_view kPageApiJs;
extern const std::string_view kPageChatJs;
extern const std::string_view kPageChartsJs;
extern const std::string_view kPageDomJs;
extern const std::string_view kPageRequestsJs;
extern const std::string_view kPageWorkersJs;
}  // namespace sluice::embedded

namespace sluice::router {

std::vector<PageFile> PageFiles() {
  return {
      {"index.html", embedded::kPageIndexHtml},   {"page.css", embedded::kPagePageCss},
      {"icon.svg", embedded::kPageIconSvg},       {"main.js", embedded::kPageMainJs},
      {"api.js", embedded::kPageApiJs},           {"chat.js", embedded::kPageChatJs},
      {"charts.js", embedded::kPageChartsJs},     {"dom.js", embedded::kPageDomJs},
      {"requests.js", embedded::kPageRequestsJs}, {"workers.js", embedded::kPageWorkersJs},
  };
}

}  // namespace sluice::router
