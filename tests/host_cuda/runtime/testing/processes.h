// Ranks as processes: forks before this process has used CUDA, as CUDA itself demands, and gathers what they say.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace host_cuda {

struct RankResult {
  int status = -1;     // what the rank's function returned; -signal if a signal ended it
  std::string output;  // what it printed, on stderr
};

// Runs rank(0) ... rank(n - 1), each in its process. One that takes longer than `seconds` is killed.
inline std::vector<RankResult> RunRanks(int n, const std::function<int(int)>& rank, unsigned seconds = 60) {
  std::vector<RankResult> results(static_cast<size_t>(n));
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (int i = 0; i < n; ++i) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t pid = fork();
    if (pid == 0) {
      for (int earlier : pipes) close(earlier);
      close(ends[0]);
      dup2(ends[1], STDERR_FILENO);
      close(ends[1]);
      alarm(seconds);
      _exit(rank(i));
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    pids.push_back(pid);
  }
  for (size_t i = 0; i < pids.size(); ++i) {
    char text[4096];
    for (ssize_t got = 0; (got = read(pipes[i], text, sizeof text)) > 0;)
      results[i].output.append(text, static_cast<size_t>(got));
    close(pipes[i]);
    int status = 0;
    waitpid(pids[i], &status, 0);
    results[i].status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    std::fputs(results[i].output.c_str(), stderr);
  }
  return results;
}

}  // namespace host_cuda
