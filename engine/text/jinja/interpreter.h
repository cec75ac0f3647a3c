// Runs a parsed template.
//
// Promises: ends within the budget of its environment, whatever the template and the variables are; throws Error with
// the line otherwise. Nothing is left behind from one rendering for the next.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

class Interpreter {
 public:
  Interpreter(const Program* program, Environment* env) : program_(*program), env_(*env), globals_(nullptr) {}

  // Variables that the template does not name are left out.
  void SetVariable(std::string_view name, Value value);
  Text Run();

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };

  Flow RunBody(const Body& body, Scope& scope);
  Flow RunStatement(const Statement& statement, Scope& scope);
  Flow RunIf(const Statement& statement, Scope& scope);
  Flow RunFor(const Statement& statement, Scope& scope);
  Flow RunItems(const Statement& statement, Scope& scope, std::vector<Value> items, int depth);
  Flow RunScoped(const Statement& statement, Scope& scope);
  std::vector<Value> FilteredItems(const Statement& statement, Scope& scope, std::vector<Value> items);
  void RunSetBlock(const Statement& statement, Scope& scope);
  void RunCallBlock(const Statement& statement, Scope& scope);
  void Assign(const Target& target, Value value, Scope& scope);
  void CheckOutput();
  Scope* InnerScope(const Statement& statement, Scope& scope, Scope* on_stack);
  // What the body writes.
  Text Capture(absl::FunctionRef<void()> run);

  Value Evaluate(const Expression& expression, Scope& scope);
  Value EvaluateName(const Expression& expression, Scope& scope);
  Value EvaluateList(const Expression& expression, Scope& scope);
  Value EvaluateDict(const Expression& expression, Scope& scope);
  Value EvaluateSlice(const Expression& expression, Scope& scope);
  Value EvaluateCall(const Expression& expression, Scope& scope);
  Value EvaluateFilter(const Expression& expression, Scope& scope);
  Value EvaluateUnary(const Expression& expression, Scope& scope);
  Value EvaluateBinary(const Expression& expression, Scope& scope);
  Value EvaluateConcat(const Expression& expression, Scope& scope);
  Value EvaluateCompare(const Expression& expression, Scope& scope);
  Value EvaluateConditional(const Expression& expression, Scope& scope);
  Arguments EvaluateArguments(const CallArguments& arguments, Scope& scope);

  Value Call(const Value& callee, Arguments arguments);
  Value CallMacro(const Macro& macro, Arguments arguments);
  void BindParameters(const Macro& macro, Arguments arguments, Scope& scope);
  Value CallLoop(Object* loop, const Arguments& arguments);

  const Program& program_;
  Environment& env_;
  Scope globals_;
  Text* out_ = nullptr;
  Value piped_;   // what a chain of filters without a value begins with
  int line_ = 0;  // being run
  int depth_ = 0;
};

}  // namespace sluice::engine::jinja
