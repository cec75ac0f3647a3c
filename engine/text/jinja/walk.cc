#include "engine/text/jinja/walk.h"

namespace sluice::engine::jinja {
namespace {

void WalkExpression(const Expression* e, absl::FunctionRef<void(const Expression&)> visit) {
  if (e == nullptr) return;
  visit(*e);
  for (const ExpressionPtr& part : e->parts) WalkExpression(part.get(), visit);
  for (const ExpressionPtr& argument : e->arguments.positional) WalkExpression(argument.get(), visit);
  for (const CallArguments::Named& named : e->arguments.named) WalkExpression(named.value.get(), visit);
  WalkExpression(e->arguments.more_positional.get(), visit);
  WalkExpression(e->arguments.more_named.get(), visit);
}

}  // namespace

void Walk(const Body& body, absl::FunctionRef<void(const Statement&)> at_statement,
          absl::FunctionRef<void(const Expression&)> at_expression) {
  for (const auto& statement : body) {
    at_statement(*statement);
    for (const ExpressionPtr& expression : statement->expressions) WalkExpression(expression.get(), at_expression);
    for (const Parameter& parameter : statement->parameters) {
      WalkExpression(parameter.default_value.get(), at_expression);
    }
    for (const Branch& branch : statement->branches) {
      WalkExpression(branch.condition.get(), at_expression);
      Walk(branch.body, at_statement, at_expression);
    }
    Walk(statement->body, at_statement, at_expression);
    Walk(statement->otherwise, at_statement, at_expression);
  }
}

}  // namespace sluice::engine::jinja
