// Finds stop strings in streamed text and holds back what may still become one.
//
// Promises: no byte of a stop string (nor after it) is ever returned; the earliest match wins; text is returned as soon
// as it can't be the beginning of a stop string any more, and always in whole characters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored

  struct Result {
    std::string text;      // may be shown
    bool stopped = false;  // a stop string was found; the answer ends here
  };
  Result Add(std::string_view text);

  // The answer ended by itself: what was held back is text after all. Empty after a stop.
  std::string Flush();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sluice::engine
