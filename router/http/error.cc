#include "router/http/error.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice::router {
namespace {

using Json = nlohmann::ordered_json;

const char* Type(int http_code) {
  if (http_code == 401) return "authentication_error";
  if (http_code == 408) return "timeout_error";
  if (http_code == 429) return "rate_limit_error";
  return http_code < 500 ? "invalid_request_error" : "server_error";
}

std::string Body(int http_code, absl::string_view message, absl::string_view param, absl::string_view code) {
  Json error;
  error["message"] = std::string(message);
  error["type"] = Type(http_code);
  error["param"] = param.empty() ? Json() : Json(std::string(param));
  error["code"] = code.empty() ? Json() : Json(std::string(code));
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::string_view HttpName(absl::string_view field) {
  if (field == "text" || field == "token_ids.ids") return "prompt";
  if (field == "request_id") return "x-request-id";
  if (field == "template_arguments") return "chat_template_kwargs";
  return absl::StripPrefix(field, "sampling.");
}

// The field of "field: what is wrong"; empty when the message doesn't begin with one.
absl::string_view FieldOf(absl::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == absl::string_view::npos) return "";
  for (const char c : message.substr(0, colon)) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("_.-[]").find(c) == absl::string_view::npos)
      return "";
  }
  return message.substr(0, colon);
}

absl::string_view CodeName(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return "model_not_found";
    case absl::StatusCode::kUnauthenticated:
      return "invalid_api_key";
    case absl::StatusCode::kResourceExhausted:
      return "rate_limit_exceeded";
    case absl::StatusCode::kUnavailable:
      return "unavailable";
    case absl::StatusCode::kDeadlineExceeded:
      return "timeout";
    default:
      return "";
  }
}

}  // namespace

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 408;  // the time that the client gave
    default:
      return 500;
  }
}

std::string ErrorBody(const absl::Status& status) {
  const int http_code = HttpCode(status);
  const absl::string_view message = status.message();
  const bool names_field = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  const absl::string_view field = names_field ? FieldOf(message) : "";
  if (field.empty()) return Body(http_code, message, "", CodeName(status));
  const absl::string_view name = HttpName(field);
  return Body(http_code, absl::StrCat(name, message.substr(field.size())), name, CodeName(status));
}

std::string ErrorBody(int http_code, absl::string_view message) {
  return Body(http_code, message, "", "");
}

}  // namespace sluice::router
