#include "cli/chat/line_reader.h"

#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cwchar>

namespace sluice::cli {
namespace {

constexpr int kHistoryLines = 500;

int SignalFd() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

}  // namespace

// libedit reads through ReadByte, so that it waits for signals, too.
struct LineReader::Editor {
  explicit Editor(LineReader* reader) : lines(reader) {
    // Characters of several bytes are edited as one.
    if (setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    edit = el_init("sluice", stdin, stdout, stderr);
    log = history_init();
    HistEvent event;
    history(log, &event, H_SETSIZE, kHistoryLines);
    history(log, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &Editor::Prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_set(edit, EL_HIST, history, log);
    el_set(edit, EL_GETCFN, &Editor::GetCharacter);
  }
  ~Editor() {
    history_end(log);
    el_end(edit);
  }

  static Editor* Of(EditLine* edit) {
    Editor* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self;
  }
  static char* Prompt(EditLine* edit) { return Of(edit)->prompt.data(); }

  static int GetCharacter(EditLine* edit, wchar_t* out) {
    Editor* self = Of(edit);
    mbstate_t state{};
    for (;;) {
      char byte = 0;
      const int got = self->lines->ReadByte(&byte);
      if (got <= 0) {
        self->last = got;
        return got;
      }
      const size_t used = mbrtowc(out, &byte, 1, &state);
      if (used == size_t(-2)) continue;  // not whole
      if (used == size_t(-1)) {
        state = mbstate_t{};
        *out = L'?';
      }
      return 1;
    }
  }

  LineReader* lines;
  EditLine* edit = nullptr;
  History* log = nullptr;
  std::string prompt;
  int last = 1;  // of GetCharacter, where it was no character
};

LineReader::LineReader() : terminal_(isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0), signal_fd_(SignalFd()) {
  if (terminal_) editor_ = std::make_unique<Editor>(this);
}

LineReader::~LineReader() {
  close(signal_fd_);
}

int LineReader::ReadByte(char* byte) {
  if (!pending_.empty()) {
    *byte = pending_.front();
    pending_.erase(0, 1);
    return 1;
  }
  pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  if ((fds[1].revents & POLLIN) != 0) {
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) == ssize_t(sizeof(info))) {
      signal_ = int(info.ssi_signo);
      return -1;
    }
  }
  char bytes[4096];
  const ssize_t got = read(STDIN_FILENO, bytes, terminal_ ? 1 : sizeof(bytes));
  if (got <= 0) return 0;
  *byte = bytes[0];
  pending_.append(bytes + 1, size_t(got - 1));
  return 1;
}

Line LineReader::ReadPlain() {
  std::string text;
  for (char byte = 0;;) {
    const int got = ReadByte(&byte);
    if (got < 0) return {Line::Kind::kSignal, "", signal_};
    if (got == 0 && text.empty()) return {Line::Kind::kEnd, "", 0};
    if (got == 0 || byte == '\n') return {Line::Kind::kText, std::move(text), 0};
    if (byte != '\r') text += byte;
  }
}

Line LineReader::ReadEdited(const std::string& prompt) {
  editor_->prompt = prompt;
  editor_->last = 1;
  int count = 0;
  const char* text = el_gets(editor_->edit, &count);
  if (editor_->last < 0) {
    el_reset(editor_->edit);
    std::printf("^C\n");
    return {Line::Kind::kSignal, "", signal_};
  }
  if (text == nullptr || count <= 0) return {Line::Kind::kEnd, "", 0};
  std::string line(text, size_t(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!line.empty()) {
    HistEvent event;
    history(editor_->log, &event, H_ENTER, line.c_str());
  }
  return {Line::Kind::kText, std::move(line), 0};
}

Line LineReader::Read(const std::string& prompt) {
  return terminal_ ? ReadEdited(prompt) : ReadPlain();
}

}  // namespace sluice::cli
