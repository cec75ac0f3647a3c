// What ends the parsing or rendering of a template. Thrown inside engine/text/jinja only: Template turns it into a
// status.
#pragma once

#include <string>
#include <utility>

namespace sluice::engine::jinja {

enum class ErrorKind : unsigned char {
  kTemplate,  // the template is wrong, or does not suit what it was given
  kRaised,    // the template refused its input with raise_exception
  kLimit,     // too much work, memory or text
};

struct Error {
  ErrorKind kind;
  std::string message;
  int line = 0;  // 0: where the interpreter is
};

[[noreturn]] inline void Fail(std::string message, int line = 0) {
  throw Error{ErrorKind::kTemplate, std::move(message), line};
}

}  // namespace sluice::engine::jinja
