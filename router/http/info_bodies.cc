#include "router/http/info_bodies.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/http/answer_json.h"
#include "router/http/field_reader.h"

namespace sluice::router {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Model(const ServedModel& model, int64_t created) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "sluice"},
          {"root", model.root},
          {"parent", nullptr},
          {"max_model_len", model.context_length}};
}

// ---- /tokenize ----

template <typename Request>
absl::Status SetModel(Request& out, const char* field, const JsonValue& value) {
  absl::StatusOr<std::string> name = ToString(field, value);
  if (!name.ok()) return name.status();
  if constexpr (std::is_same_v<Request, TokenizeCall>) {
    out.request.set_model(*std::move(name));
  } else {
    out.set_model(*std::move(name));
  }
  return absl::OkStatus();
}

absl::Status SetText(TokenizeCall& out, const char* field, const JsonValue& value) {
  absl::StatusOr<std::string> text = ToString(field, value);
  if (!text.ok()) return text.status();
  if (out.request.has_chat()) return BadField(field, "can't be together with messages");
  out.request.set_text(*std::move(text));
  return absl::OkStatus();
}

template <void (pb::TokenizeRequest::*kSet)(bool)>
absl::Status SetFlag(TokenizeCall& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (flag.ok()) (out.request.*kSet)(*flag);
  return flag.status();
}

absl::Status SetStrings(TokenizeCall& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (flag.ok()) out.strings = *flag;
  return flag.status();
}

template <void (pb::ChatPrompt::*kSet)(bool)>
absl::Status SetChatFlag(TokenizeCall& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (!flag.ok()) return flag.status();
  if (out.request.has_text()) return BadField(field, "can't be together with prompt");
  (out.request.mutable_chat()->*kSet)(*flag);
  return absl::OkStatus();
}

using JsonSetter = void (*)(pb::ChatPrompt&, std::string);
void TakeMessages(pb::ChatPrompt& chat, std::string json) {
  chat.set_messages(std::move(json));
}
void TakeTools(pb::ChatPrompt& chat, std::string json) {
  chat.set_tools(std::move(json));
}
void TakeArguments(pb::ChatPrompt& chat, std::string json) {
  chat.set_template_arguments(std::move(json));
}

template <JsonSetter kSet>
absl::Status SetJson(TokenizeCall& out, const char* field, std::string json) {
  if (out.request.has_text()) return BadField(field, "can't be together with prompt");
  kSet(*out.request.mutable_chat(), std::move(json));
  return absl::OkStatus();
}

const Fields<TokenizeCall>& TokenizeFields() {
  static const Fields<TokenizeCall> fields = {
      {.name = "model", .set = SetModel<TokenizeCall>, .wanted = "a string"},
      {.name = "prompt", .set = SetText, .wanted = "a string"},
      {.name = "messages", .raw = SetJson<TakeMessages>, .wanted = "an array of objects"},
      {.name = "tools", .raw = SetJson<TakeTools>, .wanted = "an array of objects"},
      {.name = "chat_template_kwargs", .raw = SetJson<TakeArguments>, .wanted = "an object"},
      {.name = "add_generation_prompt", .set = SetChatFlag<&pb::ChatPrompt::set_add_generation_prompt>},
      {.name = "continue_final_message", .set = SetChatFlag<&pb::ChatPrompt::set_continue_final_message>},
      {.name = "add_special_tokens", .set = SetFlag<&pb::TokenizeRequest::set_add_special_tokens>},
      {.name = "return_token_strs", .set = SetStrings},
  };
  return fields;
}

// ---- /detokenize ----

absl::Status AddToken(pb::DetokenizeRequest& out, const char* field, const JsonValue& value, int) {
  if (std::holds_alternative<OpenList>(value)) return absl::OkStatus();
  const absl::StatusOr<int32_t> id = ToInt(field, value);
  if (id.ok()) out.add_ids(*id);
  return id.status();
}

const Fields<pb::DetokenizeRequest>& DetokenizeFields() {
  static const Fields<pb::DetokenizeRequest> fields = {
      {.name = "model", .set = SetModel<pb::DetokenizeRequest>, .wanted = "a string"},
      {.name = "tokens", .add = AddToken, .wanted = "an array of token ids"},
  };
  return fields;
}

}  // namespace

std::string ModelsBody(const ServedModel& model, int64_t created) {
  return Dump({{"object", "list"}, {"data", Json::array({Model(model, created)})}});
}

absl::StatusOr<std::string> ModelBody(const ServedModel& model, std::string_view name, int64_t created) {
  if (absl::Status known = CheckModel(std::string(name), model); !known.ok()) return known;
  return Dump(Model(model, created));
}

std::string VersionBody(const std::string& version) {
  return Dump({{"version", version}});
}

absl::StatusOr<TokenizeCall> ParseTokenize(std::string_view body) {
  TokenizeCall out;
  if (absl::Status read = FieldReader<TokenizeCall>::Read(TokenizeFields(), body, out); !read.ok()) return read;
  if (out.request.prompt_case() == pb::TokenizeRequest::PROMPT_NOT_SET) {
    return BadField("prompt", "is missing; give prompt or messages");
  }
  if (out.request.has_chat() && out.request.chat().messages().empty()) return BadField("messages", "is missing");
  return out;
}

std::string TokenizeBody(const TokenizeCall& call, const pb::TokenizeResponse& response) {
  Json body = {{"count", response.ids_size()}, {"max_model_len", response.context_length()}};
  body["tokens"] = Json(std::vector<int32_t>(response.ids().begin(), response.ids().end()));
  body["token_strs"] = nullptr;
  if (call.strings) {
    body["token_strs"] = Json::array();
    for (const std::string& token : response.tokens()) body["token_strs"].push_back(TokenText(token));
  }
  return Dump(body);
}

absl::StatusOr<pb::DetokenizeRequest> ParseDetokenize(std::string_view body) {
  pb::DetokenizeRequest out;
  if (absl::Status read = FieldReader<pb::DetokenizeRequest>::Read(DetokenizeFields(), body, out); !read.ok()) {
    return read;
  }
  return out;
}

std::string DetokenizeBody(const pb::DetokenizeResponse& response) {
  return Dump({{"prompt", response.text()}});
}

}  // namespace sluice::router
