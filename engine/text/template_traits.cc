#include "engine/text/template_traits.h"

#include "absl/container/flat_hash_set.h"
#include "engine/text/jinja/walk.h"

namespace sluice::engine {
namespace {

using jinja::Body;
using jinja::Expression;
using jinja::ExpressionKind;
using jinja::Statement;
using jinja::StatementKind;

bool Names(const Expression& e, std::string_view name) {
  if (e.kind == ExpressionKind::kAttribute) return e.text == name;
  return e.kind == ExpressionKind::kItem && e.parts[1]->kind == ExpressionKind::kConstant &&
         e.parts[1]->constant.Is(jinja::Kind::kText) && e.parts[1]->constant.bytes() == name;
}

// message.content, a name in `aliases`, or either of them filtered or defaulted.
bool IsContent(const Expression& e, const absl::flat_hash_set<std::string>& aliases) {
  if (Names(e, "content")) return true;
  if (e.kind == ExpressionKind::kName) return aliases.contains(e.text);
  const bool passes_on =
      (e.kind == ExpressionKind::kFilter || e.kind == ExpressionKind::kSlice) && e.parts[0] != nullptr;
  return passes_on && IsContent(*e.parts[0], aliases);
}

// Macros that get the content as an argument loop over a parameter of theirs.
void AddAliases(const jinja::Program& program, absl::flat_hash_set<std::string>& aliases) {
  jinja::Walk(
      program.body,
      [&](const Statement& s) {
        if (s.kind != StatementKind::kSet || s.target.name.empty() || !s.target.attribute.empty()) return;
        if (IsContent(*s.expressions[0], aliases)) aliases.insert(s.target.name);
      },
      [&](const Expression& call) {
        if (call.kind != ExpressionKind::kCall || call.parts[0]->kind != ExpressionKind::kName) return;
        for (size_t i = 0; i < call.arguments.positional.size(); ++i) {
          if (!IsContent(*call.arguments.positional[i], aliases)) continue;
          jinja::Walk(
              program.body,
              [&](const Statement& macro) {
                if (macro.kind == StatementKind::kMacro && macro.name == call.parts[0]->text &&
                    i < macro.parameters.size()) {
                  aliases.insert(macro.parameters[i].name);
                }
              },
              [](const Expression&) {});
        }
      });
}

bool IsArguments(const Expression& e) {
  return Names(e, "arguments");
}

}  // namespace

TemplateTraits TraitsOf(const jinja::Program& program) {
  TemplateTraits traits;
  absl::flat_hash_set<std::string> aliases;
  AddAliases(program, aliases);
  AddAliases(program, aliases);  // of aliases
  bool plain_arguments = false, other_arguments = false;
  const auto look_at_writing = [&](const Expression& e) { plain_arguments = plain_arguments || IsArguments(e); };
  jinja::Walk(
      program.body,
      [&](const Statement& s) {
        if (s.kind == StatementKind::kFor && IsContent(*s.expressions[0], aliases)) traits.loops_over_content = true;
        if (s.kind == StatementKind::kOutput) {
          for (const auto& e : s.expressions) look_at_writing(*e);
        }
      },
      [&](const Expression& e) {
        if (e.kind == ExpressionKind::kTest && e.text == "string") traits.asks_for_strings = true;
        if (Names(e, "tool_calls")) traits.knows_tool_calls = true;
        if (e.kind == ExpressionKind::kConstant && e.constant.Is(jinja::Kind::kText) &&
            e.constant.bytes() == "tool_calls") {
          traits.knows_tool_calls = true;
        }
        if (e.kind == ExpressionKind::kConcat || (e.kind == ExpressionKind::kBinary && e.text == "+")) {
          for (const auto& part : e.parts) look_at_writing(*part);
        }
        // Any other use of them is one of a mapping, or tells strings and mappings apart.
        const bool looks = e.kind == ExpressionKind::kFilter || e.kind == ExpressionKind::kTest ||
                           e.kind == ExpressionKind::kAttribute || e.kind == ExpressionKind::kItem ||
                           e.kind == ExpressionKind::kSlice;
        if (looks && e.parts[0] != nullptr && IsArguments(*e.parts[0])) other_arguments = true;
      });
  traits.arguments_as_text = plain_arguments && !other_arguments;
  return traits;
}

ToolCallStyle ToolCallStyleOf(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
  if (has("[TOOL_CALLS]")) return ToolCallStyle::kMistral;
  // Others write XML between the same tags.
  if (has("<tool_call>") && !has("<function=") && !has("<arg_key>") && has("tool_calls")) return ToolCallStyle::kHermes;
  if (has("<|python_tag|>") && has("\"parameters\": ")) return ToolCallStyle::kLlama3;
  if (has("<|start_header_id|>") && has("{\"name\": ") && has("\"parameters\": ")) return ToolCallStyle::kLlama3;
  return ToolCallStyle::kNone;
}

}  // namespace sluice::engine
