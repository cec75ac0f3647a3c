// Lines of standard input: with editing and a history at a terminal, plain otherwise. The history lives as long as the
// reader. Interrupt::Block() must have run before the first thread.
#pragma once

#include <memory>
#include <string>

namespace sluice::cli {

struct Line {
  enum class Kind { kText, kEnd, kSignal } kind = Kind::kEnd;
  std::string text;
  int signal = 0;  // SIGINT or SIGTERM came while it waited; what was typed so far is dropped
};

class LineReader {
 public:
  LineReader();
  ~LineReader();

  bool terminal() const { return terminal_; }
  // `prompt` is shown at a terminal only.
  Line Read(const std::string& prompt);

 private:
  struct Editor;

  Line ReadPlain();
  Line ReadEdited(const std::string& prompt);
  // Waits for a byte of input: 1, 0 at its end, -1 for a signal, which is in `signal_` then.
  int ReadByte(char* byte);

  bool terminal_;
  int signal_fd_;
  int signal_ = 0;
  std::string pending_;  // read, not used
  std::unique_ptr<Editor> editor_;
};

}  // namespace sluice::cli
