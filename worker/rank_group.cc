#include "worker/rank_group.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/parallel/follower.h"
#include "glog/logging.h"
#include "worker/open_engine.h"

extern char** environ;

namespace sluice::worker {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // of the collective: a step's rows go in a few rounds
constexpr size_t kPage = 4096;

size_t CollectiveBytes(int ranks) {
  return (engine::SharedMemoryCollective::BytesFor(ranks, kBufferBytes) + kPage - 1) / kPage * kPage;
}

RankKvBox* BoxesIn(const SharedRegion& region, int ranks) {
  static_assert(sizeof(RankKvBox) % alignof(RankKvBox) == 0 && std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<RankKvBox*>(region.data() + CollectiveBytes(ranks));
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was killed by ", strsignal(WTERMSIG(status)));
  return absl::StrCat("ended with code ", WEXITSTATUS(status), "; what it said is above");
}

// A step that no rank needs anything of: when it is over, all have begun.
absl::Status Meet(kernels::Collective& collective) {
  const std::vector<int64_t> none(size_t(collective.size()) + 1, 0);
  float nothing = 0;
  return collective.Gather(&nothing, 1, 1, none, kernels::Collective::To::kAll);
}

}  // namespace

RankGroup::RankGroup(SharedRegion region, int ranks, bool own_pools, std::function<void(const absl::Status&)> on_lost)
    : region_(std::move(region)), own_pools_(own_pools), collective_(region_.data(), 0, ranks, kBufferBytes), on_lost_(std::move(on_lost)) {}

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Start(const WorkerOptions& options, size_t kv_bytes,
                                                            std::function<void(const absl::Status&)> on_lost) {
  const bool own_pools = kv_bytes == 0;
  const size_t behind = own_pools ? size_t(options.tp - 1) * sizeof(RankKvBox) : kv_bytes;
  auto region = SharedRegion::Make(CollectiveBytes(options.tp) + behind);
  if (!region.ok()) return region.status();
  std::unique_ptr<RankGroup> group(new RankGroup(*std::move(region), options.tp, own_pools, std::move(on_lost)));
  group->stop_fd_ = eventfd(0, EFD_CLOEXEC);
  for (int rank = 1; rank < options.tp; ++rank) {
    if (absl::Status spawned = group->Spawn(options, rank); !spawned.ok()) return spawned;
  }
  group->watch_ = std::thread([group = group.get()] { group->Watch(); });
  return group;
}

absl::Status RankGroup::Spawn(const WorkerOptions& options, int rank) {
  std::vector<std::string> words = options.command_line;
  words.push_back(absl::StrCat("--tp-rank=", rank));
  const int fd = fcntl(region_.fd(), F_DUPFD, 3);  // not closed on exec, unlike the region's own
  words.push_back(absl::StrCat("--tp-memory=", fd));
  words.push_back(absl::StrCat("--tp-leader=", getpid()));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = fd < 0 ? errno : posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
  if (fd >= 0) close(fd);
  if (error != 0) return absl::UnavailableError(absl::StrCat("cannot start rank ", rank, ": ", strerror(error)));
  children_.push_back({rank, pid, int(syscall(SYS_pidfd_open, pid, 0))});
  LOG(INFO) << "rank " << rank << " of " << options.tp << " is process " << pid;
  return absl::OkStatus();
}

std::byte* RankGroup::kv_memory() const {
  return own_pools_ ? nullptr : region_.data() + CollectiveBytes(collective_.size());
}

std::span<RankKvBox> RankGroup::boxes() const {
  if (!own_pools_) return {};
  return {BoxesIn(region_, collective_.size()), size_t(collective_.size() - 1)};
}

void RankGroup::Watch() {
  std::vector<pollfd> fds = {{stop_fd_, POLLIN, 0}};
  for (const Child& child : children_) fds.push_back({child.pidfd, POLLIN, 0});
  while (poll(fds.data(), nfds_t(fds.size()), -1) < 0 && errno == EINTR) {
  }
  if (leaving_) return;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (fds[i + 1].revents == 0) continue;
    siginfo_t info = {};
    waitid(P_PID, id_t(children_[i].pid), &info, WEXITED | WNOWAIT);
    const int status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
    const absl::Status lost = absl::UnavailableError(
        absl::StrCat("rank ", children_[i].rank, " (process ", children_[i].pid, ") ", HowItEnded(status)));
    {
      absl::MutexLock lock(&mutex_);
      lost_ = lost;
    }
    collective_.Abort();
    on_lost_(lost);
    return;
  }
}

absl::Status RankGroup::AwaitReady() {
  const absl::Status met = Meet(collective_);
  absl::MutexLock lock(&mutex_);
  return lost_.ok() ? met : lost_;
}

absl::Status RankGroup::Explain(const absl::Status& error) {
  constexpr absl::Duration kMoment = absl::Milliseconds(300);
  absl::MutexLock lock(&mutex_);
  const auto lost = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !lost_.ok(); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&lost), kMoment)) return error;
  return absl::Status(error.code(), absl::StrCat(lost_.message(), "; ", error.message()));
}

RankGroup::~RankGroup() {
  leaving_ = true;
  const uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof one) < 0) LOG(WARNING) << "cannot wake the watch: " << strerror(errno);
  if (watch_.joinable()) watch_.join();
  collective_.Abort();  // for those that were not told to stop: nobody waits for them any more
  const absl::Time end = absl::Now() + absl::Seconds(2);
  for (const Child& child : children_) {
    while (waitpid(child.pid, nullptr, WNOHANG) == 0) {
      if (absl::Now() > end) kill(child.pid, SIGKILL);
      absl::SleepFor(absl::Milliseconds(2));
    }
    if (child.pidfd >= 0) close(child.pidfd);
  }
  if (stop_fd_ >= 0) close(stop_fd_);
}

absl::Status RunFollowingRank(const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != options.tp_leader) return absl::UnavailableError("rank 0 is gone");
  signal(SIGINT, SIG_IGN);  // a terminal sends it to all; rank 0 decides
  signal(SIGTERM, SIG_IGN);
  if (absl::Status pinned = PinTo(options); !pinned.ok()) return pinned;
  auto region = SharedRegion::Inherit(options.tp_memory);
  if (!region.ok()) return region.status();
  engine::SharedMemoryCollective collective(region->data(), options.tp_rank, options.tp, kBufferBytes);
  auto opened = OpenModelAndBackend(options);
  if (!opened.ok()) return opened.status();
  const bool own_pool = opened->backend->has_own_memory();
  auto follower = engine::Follower::Create(*opened->file, *opened->backend, ToEngineOptions(options), &collective,
                                           own_pool ? nullptr : region->data() + CollectiveBytes(options.tp));
  if (!follower.ok()) return follower.status();
  std::optional<RankKvServer> kv;
  if (own_pool) {
    kernels::KvPool& pool = (*follower)->kv();
    kv.emplace(BoxesIn(*region, options.tp) + options.tp_rank - 1, pool.device(), pool.layout());
  }
  if (absl::Status met = Meet(collective); !met.ok()) return met;
  return (*follower)->Run();
}

}  // namespace sluice::worker
