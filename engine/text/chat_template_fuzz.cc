// Any bytes as a template, and any bytes as messages for it: neither crashes, hangs, nor needs much memory.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/from_json.h"
#include "engine/text/jinja/template.h"
#include "engine/text/utf8.h"

namespace sluice::engine {
namespace {

constexpr std::string_view kMessages = R"([{"role": "user", "content": "a <b> 1"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]}])";

void Fuzz(std::string_view source, std::string_view json) {
  const absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return;
  jinja::Limits limits;
  limits.steps = 200'000;
  limits.live_bytes = 4 << 20;
  limits.output_bytes = 1 << 20;
  const absl::StatusOr<jinja::Text> text =
      parsed->Render(limits, {}, [&](jinja::Environment& env, jinja::Template::SetVariable set) {
        const absl::StatusOr<jinja::Value> messages = jinja::FromJson(env, json);
        if (!messages.ok()) return messages.status();
        set("messages", *messages);
        set("x", *messages);
        return absl::OkStatus();
      });
  if (!text.ok()) return;
  if (ValidPrefix(text->bytes()) != text->size()) std::abort();
  size_t last = 0;
  for (const TextSpan& span : text->template_spans()) {
    if (span.begin < last || span.end <= span.begin || span.end > text->size()) std::abort();
    last = span.end + 1;
  }
}

}  // namespace
}  // namespace sluice::engine

// A zero byte ends the template; the messages follow it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\0');
  if (end == std::string_view::npos) {
    sluice::engine::Fuzz(bytes, sluice::engine::kMessages);
    return 0;
  }
  sluice::engine::Fuzz(bytes.substr(0, end), bytes.substr(end + 1));
  const absl::StatusOr<sluice::engine::ChatTemplate> chat = sluice::engine::ChatTemplate::Create(
      {"{% for m in messages %}{{ m.role + m.content }}{% endfor %}", "", "<s>", ""});
  (void)chat->Render({.messages = bytes.substr(end + 1)});
  return 0;
}
