#include "router/http/api_request.h"

#include "absl/strings/str_cat.h"

namespace sluice::router {

pb::GenerateRequest ApiRequest::Request(size_t i) const {
  pb::GenerateRequest one = request;
  if (prompts.empty()) return one;
  if (!one.request_id().empty()) one.set_request_id(absl::StrCat(one.request_id(), "-", i));
  if (const std::string* text = std::get_if<std::string>(&prompts[i])) {
    one.set_text(*text);
  } else {
    const auto& ids = std::get<std::vector<int32_t>>(prompts[i]);
    one.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  return one;
}

}  // namespace sluice::router
