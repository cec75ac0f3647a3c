#include "router/http/head.h"

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

constexpr size_t kMaxRequestId = 256;

}  // namespace

std::string HeadBytes(const HttpHead& request, int code, const std::string& content_type, const HttpFields& more) {
  const auto reason = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(unsigned(code)));
  std::string bytes =
      absl::StrCat(request.http10 ? "HTTP/1.0 " : "HTTP/1.1 ", code, " ", std::string(reason),
                   "\r\nServer: sluice\r\nContent-Type: ", content_type, "\r\nCache-Control: no-store\r\n");
  if (!request.request_id.empty()) absl::StrAppend(&bytes, "X-Request-Id: ", request.request_id, "\r\n");
  // What is not the version's default.
  if (request.keep_alive == request.http10) {
    absl::StrAppend(&bytes, "Connection: ", request.keep_alive ? "keep-alive" : "close", "\r\n");
  }
  for (const auto& [name, value] : more) absl::StrAppend(&bytes, name, ": ", value, "\r\n");
  return bytes + "\r\n";
}

std::string_view PathOf(std::string_view target) {
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && target[0] != '/') {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target.substr(0, target.find('?'));
}

std::string_view QueryOf(std::string_view target) {
  const size_t mark = target.find('?');
  return mark == std::string_view::npos ? "" : target.substr(mark + 1);
}

std::string DecodePath(std::string_view part) {
  std::string text;
  for (size_t i = 0; i < part.size(); ++i) {
    const std::string_view digits = part.substr(std::min(part.size(), i + 1), 2);
    if (part[i] == '%' && digits.size() == 2 && absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(digits[1]))) {
      text += absl::HexStringToBytes(std::string(digits));
      i += 2;
    } else {
      text += part[i];
    }
  }
  return text;
}

std::string_view FitForTrace(std::string_view value, size_t limit) {
  const bool printable = std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < '\x7f'; });
  return printable && value.size() <= limit ? value : std::string_view();
}

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string RetryAfterSeconds(absl::Duration retry_after) {
  return absl::StrCat(std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(retry_after, absl::Seconds(1)))));
}

}  // namespace sluice::router
