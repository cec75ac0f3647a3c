#include "engine/text/jinja/template.h"

#include <utility>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/interpreter.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/utf8.h"

namespace sluice::engine::jinja {
namespace {

constexpr size_t kMaxSource = size_t{1} << 20;

absl::Status ToStatus(const Error& error) {
  if (error.kind == ErrorKind::kRaised) return absl::InvalidArgumentError(error.message);
  return absl::InvalidArgumentError(Concat("line ", error.line, " of the chat template: ", error.message));
}

}  // namespace

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  if (source.size() > kMaxSource) return absl::InvalidArgumentError("the chat template is longer than 1 MiB");
  if (ValidPrefix(source) != source.size()) return absl::InvalidArgumentError("the chat template is not UTF-8");
  try {
    return Template(std::make_shared<const Program>(jinja::Parse(source)));
  } catch (const Error& error) {
    return ToStatus(error);
  }
}

absl::StatusOr<Text> Template::Render(const Limits& limits, const std::tm& now, Fill fill) const {
  Environment env(limits, now);
  try {
    Interpreter interpreter(program_.get(), &env);
    const absl::Status filled =
        fill(env, [&](std::string_view name, Value value) { interpreter.SetVariable(name, std::move(value)); });
    if (!filled.ok()) return filled;
    return interpreter.Run();
  } catch (const Error& error) {
    return ToStatus(error);
  }
}

}  // namespace sluice::engine::jinja
