// Renders conversations with a chat template, for comparison with jinja2: reads one JSON object a line, writes one a
// line.
//
// In: {"template": "...", "bos": "", "eos": "", "messages": [...], "tools": [...], "template_arguments": {...},
//      "add_generation_prompt": true, "continue_final_message": false, "now": 0}, where messages, tools and
//      template_arguments may also be strings of JSON; all but "template" and "messages" may be missing. With
//      "variables": {...} in place of messages, they are rendered as plain Jinja, without any chat.
// Out: {"text": "...", "spans": [[begin, end], ...], "ids": [...]} or {"error": "..."}; ids with --model only.
#include <iostream>
#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "engine/files/model_file.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja/from_json.h"
#include "engine/text/jinja/template.h"
#include "engine/text/template_traits.h"
#include "engine/text/tokenizer.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using Json = nlohmann::ordered_json;

std::string JsonText(const Json& line, const char* field) {
  if (!line.contains(field) || line[field].is_null()) return "";
  return line[field].is_string() ? line[field].get<std::string>() : line[field].dump();
}

Json Error(const absl::Status& status) {
  return Json{{"error", std::string(status.message())}, {"code", static_cast<int>(status.code())}};
}

Json RenderPlain(const Json& line) {
  const absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(line.at("template").get<std::string>());
  if (!parsed.ok()) return Error(parsed.status());
  const std::string variables = JsonText(line, "variables");
  const auto now = static_cast<time_t>(line.value("now", int64_t{0}));
  const std::tm tm = absl::ToTM(absl::FromTimeT(now), absl::UTCTimeZone());
  const absl::StatusOr<jinja::Text> text =
      parsed->Render(jinja::Limits{}, tm, [&](jinja::Environment& env, jinja::Template::SetVariable set) {
        const absl::StatusOr<jinja::Value> values = jinja::FromJson(env, variables);
        if (!values.ok()) return values.status();
        for (const auto& [name, value] : values->dict().entries) set(name.bytes(), value);
        return absl::OkStatus();
      });
  if (!text.ok()) return Error(text.status());
  Json spans = Json::array();
  for (const TextSpan& span : text->template_spans()) spans.push_back({span.begin, span.end});
  return Json{{"text", text->bytes()}, {"spans", spans}};
}

Json Render(const Json& line, const ChatTemplate& chat_template, const Tokenizer* tokenizer) {
  const std::string messages = JsonText(line, "messages"), tools = JsonText(line, "tools");
  const std::string arguments = JsonText(line, "template_arguments");
  ChatInput input;
  input.messages = messages;
  input.tools = tools;
  input.template_arguments = arguments;
  if (line.contains("add_generation_prompt")) input.add_generation_prompt = line["add_generation_prompt"].get<bool>();
  input.continue_final_message = line.value("continue_final_message", false);
  input.now = absl::FromUnixSeconds(line.value("now", int64_t{0}));
  const absl::StatusOr<RenderedPrompt> prompt = chat_template.Render(input);
  if (!prompt.ok()) return Error(prompt.status());
  Json spans = Json::array();
  for (const TextSpan& span : prompt->template_text) spans.push_back({span.begin, span.end});
  Json out{{"text", prompt->text}, {"spans", spans}};
  if (tokenizer != nullptr) out["ids"] = EncodePrompt(*tokenizer, *prompt);
  return out;
}

int Dump(const std::string& path) {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenizerData data;
  if (!path.empty()) {
    const absl::StatusOr<std::unique_ptr<ModelFile>> model = OpenModel(path);
    if (!model.ok()) {
      std::cerr << model.status().message() << "\n";
      return 1;
    }
    data = (*model)->tokenizer();
    absl::StatusOr<std::unique_ptr<Tokenizer>> created = Tokenizer::Create(data);
    if (!created.ok()) {
      std::cerr << path << ": " << created.status().message() << "\n";
      return 1;
    }
    tokenizer = *std::move(created);
  }
  std::map<std::string, absl::StatusOr<ChatTemplate>> templates;
  for (std::string text; std::getline(std::cin, text);) {
    const Json line = Json::parse(text);
    if (line.contains("variables")) {
      std::cout << RenderPlain(line).dump() << std::endl;
      continue;
    }
    const std::string source = line.value("template", data.chat_template);
    const std::string key = source + line.value("bos", "") + line.value("eos", "");
    if (!templates.contains(key)) {
      templates.emplace(key, line.contains("template")
                                 ? ChatTemplate::Create({source, "", line.value("bos", ""), line.value("eos", "")})
                                 : ChatTemplate::Create(data));
    }
    const absl::StatusOr<ChatTemplate>& chat_template = templates.at(key);
    std::cout
        << (chat_template.ok() ? Render(line, *chat_template, tokenizer.get()) : Error(chat_template.status())).dump()
        << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Renders conversations, one JSON object a line, with chat templates");
  std::string model;
  app.add_option("--model", model, "GGUF file: its vocabulary gives ids, its template is the default");
  CLI11_PARSE(app, argc, argv);
  return sluice::engine::Dump(model);
}
