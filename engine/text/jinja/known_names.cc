#include "engine/text/jinja/known_names.h"

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/tests.h"

namespace sluice::engine::jinja {
namespace {

void Check(const Expression* expression) {
  if (expression == nullptr || expression->kind == ExpressionKind::kConditional) return;
  if (expression->kind == ExpressionKind::kFilter && !IsFilter(expression->text)) {
    Fail(Concat("No filter named '", expression->text, "'."), expression->line);
  }
  if (expression->kind == ExpressionKind::kTest && !IsTest(expression->text)) {
    Fail(Concat("No test named '", expression->text, "'."), expression->line);
  }
  for (const ExpressionPtr& part : expression->parts) Check(part.get());
  for (const ExpressionPtr& argument : expression->arguments.positional) Check(argument.get());
  for (const CallArguments::Named& named : expression->arguments.named) Check(named.value.get());
  Check(expression->arguments.more_positional.get());
  Check(expression->arguments.more_named.get());
}

}  // namespace

bool IsFilter(std::string_view name) {
  return FindFilter(name) != nullptr;
}
bool IsTest(std::string_view name) {
  return FindTest(name) != nullptr;
}

void CheckKnownNames(const Body& body) {
  for (const auto& statement : body) {
    if (statement->kind == StatementKind::kIf) continue;
    for (const ExpressionPtr& expression : statement->expressions) Check(expression.get());
    for (const Parameter& parameter : statement->parameters) Check(parameter.default_value.get());
    CheckKnownNames(statement->body);
    CheckKnownNames(statement->otherwise);
  }
}

}  // namespace sluice::engine::jinja
