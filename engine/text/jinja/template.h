// A Jinja template as Hugging Face's chat templates are: jinja2 3.1's sandbox with trim_blocks, lstrip_blocks and loop
// controls, `tojson` without escapes for HTML, raise_exception and strftime_now.
//
// Promises: rendered as jinja2 renders it, or refused with the line; every rendering begins anew; ends within the
// limits. Thread-safe once parsed. What is not supported: see parser.h, filters.h and methods.h; ints have 64 bits.
#pragma once

#include <ctime>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

class Template {
 public:
  // INVALID_ARGUMENT with the line.
  static absl::StatusOr<Template> Parse(std::string_view source);

  using SetVariable = absl::FunctionRef<void(std::string_view name, Value value)>;
  // Sets the variables, whose values belong to the environment.
  using Fill = absl::FunctionRef<absl::Status(Environment& env, SetVariable set)>;

  // INVALID_ARGUMENT with the line, or with what the template says itself by raise_exception; what `fill` returns.
  absl::StatusOr<Text> Render(const Limits& limits, const std::tm& now, Fill fill) const;

  const Program& program() const { return *program_; }

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace sluice::engine::jinja
