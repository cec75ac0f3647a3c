// Finds stop strings in streamed text and holds back what may still become one.
//
// Promises: no byte of a stop string (nor after it) is ever returned; the earliest match wins: the stop string that is
// complete first, the longest where several end at the same byte. Text is returned as soon as it can't be the beginning
// of a stop string any more, and always in whole characters. How the text is cut into pieces makes no difference. Each
// byte costs one step per stop string, amortised.
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
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [text.size()] longest proper prefix of text[0..i] that is also its suffix
    size_t matched = 0;          // bytes of `text` that the text so far ends with; the longest such prefix
  };
  // Feeds one byte to all stops. The length of the longest one that is complete now, or 0.
  size_t Step(char c);

  std::vector<Stop> stops_;
  std::string held_;  // not returned yet; ends with every prefix that is matched
  bool stopped_ = false;
};

}  // namespace sluice::engine
