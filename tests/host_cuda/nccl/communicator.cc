#include "tests/host_cuda/nccl/communicator.h"

#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/host_cuda/nccl/launch_order.h"
#include "tests/host_cuda/runtime/device_work.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::nccl {
namespace {

constexpr int kPollMs = 20;
constexpr size_t kMaxDevices = 64;

// One per device of this process, as a launch order is a device's.
LaunchOrder& OrderOf(int device) {
  static auto& orders = *new std::array<LaunchOrder, kMaxDevices>;
  return orders[static_cast<size_t>(device) % kMaxDevices];
}

std::string DeviceName(int device) {
  static const uint64_t salt = std::random_device{}();
  return std::to_string(getpid()) + "." + std::to_string(salt) + ":" + std::to_string(device);
}

socklen_t Address(const std::string& id, int rank, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;  // abstract: goes with its processes
  const std::string name = "host_cuda_nccl-" + id + "-" + std::to_string(rank);
  std::memcpy(address->sun_path + 1, name.data(), std::min(name.size(), sizeof address->sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

NcclSettings NcclSettingsFromEnvironment() {
  NcclSettings settings;
  if (const char* ms = std::getenv("HOST_CUDA_NCCL_TIMEOUT_MS"))
    settings.timeout = std::chrono::milliseconds(std::atol(ms));
  if (const char* order = std::getenv("HOST_CUDA_NCCL_ORDER")) settings.check_order = std::strcmp(order, "ignore") != 0;
  if (const char* stalls = std::getenv("HOST_CUDA_NCCL_STALL")) {
    std::istringstream words(stalls);
    for (std::string word; std::getline(words, word, ',');) {
      int rank = 0;
      unsigned long long n = 0;
      long ms = 0;
      if (std::sscanf(word.c_str(), "%d:%llu:%ld", &rank, &n, &ms) != 3) {
        std::fprintf(stderr, "host_cuda: HOST_CUDA_NCCL_STALL: '%s' is not rank:n:ms\n", word.c_str());
        std::abort();
      }
      settings.stalls[{rank, n}] = std::chrono::milliseconds(ms);
    }
  }
  return settings;
}

uint64_t NextLaunch(int device) {
  static std::array<std::atomic<uint64_t>, kMaxDevices> counts;
  return ++counts[static_cast<size_t>(device) % kMaxDevices];
}

Communicator::Communicator(int on, bool waits)
    : device(on), blocking(waits), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Communicator::~Communicator() {
  for (Link& link : links) link.Close();
  close(wake_);
}

std::string Communicator::Name() const {
  return "rank " + std::to_string(me.rank) + " of " + std::to_string(me.ranks) + " on communicator " +
         me.id.substr(0, 8);
}

void Communicator::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof one);
}

void Communicator::Start(std::function<bool(Membership*)> who) {
  thread_ = std::thread(&Communicator::Run, this, std::move(who));
}

ncclResult_t Communicator::WaitReady() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return state != ncclInProgress || aborted; });
  return state;
}

ncclResult_t Communicator::Usable(const char* call) {
  std::lock_guard<std::mutex> lock(mutex);
  if (aborted || closing_) return ncclInvalidArgument;
  if (state == ncclInProgress) {
    Remark(std::string(call) + " on " + Name() +
           " before its last operation returned ncclSuccess (poll ncclCommGetAsyncError)");
    return ncclInvalidArgument;
  }
  return state;
}

uint64_t Communicator::Announce(const Signature& signature, const std::map<int, std::pair<int, int>>& peers) {
  const uint64_t launch = NextLaunch(device);
  std::lock_guard<std::mutex> lock(mutex);
  const std::string what = Text(signature) + " on communicator " + me.id.substr(0, 8);
  for (const auto& [peer, counts] : peers) {
    if (peer == me.rank) continue;
    Link& link = links[static_cast<size_t>(peer)];
    link.Send(Kind::kLaunched, what, signature, launch, counts.first, counts.second);
    if (!settings.check_order) continue;
    for (int i = 0; i < counts.first + counts.second; ++i) {
      const std::string found = OrderOf(device).Add(link.device, me.id, i < counts.first, /*own=*/true, {launch, what});
      if (!found.empty()) Wrong(Name() + ": " + found, peer);
    }
  }
  Wake();
  return ++announced;
}

ncclResult_t Communicator::Submit(std::function<ncclResult_t()> enqueue) {
  if (blocking) return enqueue();
  std::lock_guard<std::mutex> lock(mutex);
  if (state != ncclSuccess && state != ncclInProgress) return state;
  state = ncclInProgress;
  later_.push_back({Clock::now() + std::chrono::microseconds(random_() % 2000), std::move(enqueue)});
  Wake();
  return ncclInProgress;
}

bool Communicator::ExchangeSplit(uint64_t number, int colour, int key, std::vector<std::pair<int, int>>* all) {
  std::unique_lock<std::mutex> lock(mutex);
  splits_[number][me.rank] = {colour, key};
  for (int peer = 0; peer < me.ranks; ++peer) {
    if (peer != me.rank) links[static_cast<size_t>(peer)].Send(Kind::kSplit, {}, {}, number, colour, key);
  }
  Wake();
  const auto complete = [&] { return splits_[number].size() == static_cast<size_t>(me.ranks); };
  changed.wait(lock, [&] { return complete() || aborted || (state != ncclSuccess && state != ncclInProgress); });
  if (!complete()) return false;
  for (const auto& [rank, place] : splits_[number]) all->push_back(place);
  splits_.erase(number);
  return true;
}

ncclResult_t Communicator::Finish(const char* call) {
  std::unique_lock<std::mutex> lock(mutex);
  const auto begun = Clock::now();
  bool said = false;
  for (;;) {
    if (aborted) return ncclInvalidArgument;
    if (state != ncclSuccess && state != ncclInProgress) return state;
    if (later_.empty() && finished == announced && state == ncclSuccess) break;
    if (StuckWith(device) != cudaSuccess) return ncclUnhandledCudaError;  // it finishes nothing any more
    if (!said && Clock::now() - begun > settings.timeout) {
      said = true;
      Remark(std::string(call) + " on " + Name() + " waits for " + std::to_string(announced - finished) +
             " operations since " + std::to_string(settings.timeout.count()) + " ms (ncclCommAbort gives them up)");
    }
    changed.wait_for(lock, std::chrono::milliseconds(20));
  }
  if (bye_sent_) return ncclSuccess;
  bye_sent_ = true;
  for (Link& link : links) {
    if (link.open()) link.Send(Kind::kBye);
  }
  Wake();
  return ncclSuccess;
}

void Communicator::Abort() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    aborted = true;
    later_.clear();
    changed.notify_all();
    Wake();
  }
  Close();
}

void Communicator::Close() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    closing_ = true;
    changed.notify_all();
    Wake();
  }
  if (thread_.joinable()) thread_.join();
  std::lock_guard<std::mutex> lock(mutex);
  for (Link& link : links) link.Close();
}

void Communicator::Wrong(const std::string& text, int peer) {
  if (peer >= 0 && peer < me.ranks && peer != me.rank) {
    Link& link = links[static_cast<size_t>(peer)];
    link.Send(Kind::kWrong, text);
    link.Flush();  // this process may end now
  }
  Fail(ncclInvalidUsage, text);
}

void Communicator::Remark(const std::string& text) {
  last_error = text;
  Report("NCCL: " + text);
}

void Communicator::Fail(ncclResult_t error, const std::string& text) {
  Remark(text);
  const char* mode = std::getenv("HOST_CUDA_ON_ERROR");
  if (error == ncclInvalidUsage && (mode == nullptr || std::strcmp(mode, "report") != 0)) std::abort();
  if (state == ncclSuccess || state == ncclInProgress) state = error;
  changed.notify_all();
}

void Communicator::Run(std::function<bool(Membership*)> who) {
  cudaSetDevice(device);  // what the default stream means in this thread
  Membership mine;
  const bool wanted = who(&mine);
  {
    std::lock_guard<std::mutex> lock(mutex);
    me = mine;
    random_.seed(static_cast<unsigned>(me.rank) + 1);
    links.resize(static_cast<size_t>(std::max(me.ranks, 0)));
    if (!wanted) {
      state = ncclRemoteError;
      changed.notify_all();
      return;
    }
  }
  if (!Connect()) return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    state = ncclSuccess;
    changed.notify_all();
  }
  Serve();
}

bool Communicator::Connect() {
  int listener = -1;
  if (!Listen(&listener)) return false;
  bool all = true;
  for (int rank = 0; rank < me.rank && all; ++rank) all = Reach(rank);
  for (int i = me.rank + 1; i < me.ranks && all; ++i) all = AcceptOne(listener);
  close(listener);
  return all;
}

bool Communicator::Listen(int* listener) {
  sockaddr_un address;
  const socklen_t length = Address(me.id, me.rank, &address);
  *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (bind(*listener, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(*listener, 64) == 0) return true;
  std::lock_guard<std::mutex> lock(mutex);
  Fail(errno == EADDRINUSE ? ncclInvalidUsage : ncclSystemError,
       Name() + ": " + (errno == EADDRINUSE ? "this rank was initialised twice" : std::strerror(errno)));
  close(*listener);
  return false;
}

// Until the attempt succeeds or the communicator is given up; says so, once, when it takes long.
bool Communicator::WaitFor(const std::function<bool()>& attempt, const std::string& what) {
  const auto begun = Clock::now();
  bool said = false;
  while (!attempt()) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (aborted || closing_ || state != ncclInProgress) return false;
      if (!said && Clock::now() - begun > settings.timeout) {
        said = true;
        Remark(Name() + " waits for " + what + " since " + std::to_string(settings.timeout.count()) + " ms");
      }
    }
    usleep(1000);
  }
  return true;
}

bool Communicator::Reach(int rank) {
  sockaddr_un address;
  const socklen_t length = Address(me.id, rank, &address);
  int out = -1;
  const bool reached = WaitFor(
      [&] {
        out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(out, reinterpret_cast<sockaddr*>(&address), length) == 0) return true;
        close(out);
        return false;
      },
      "rank " + std::to_string(rank) + " to come");
  if (!reached) return false;
  const int32_t mine = me.rank;
  return write(out, &mine, sizeof mine) == sizeof mine && Adopt(out, rank);
}

bool Communicator::AcceptOne(int listener) {
  int in = -1;
  const bool came =
      WaitFor([&] { return (in = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; }, "a higher rank to come");
  int32_t rank = -1;
  if (!came || recv(in, &rank, sizeof rank, MSG_WAITALL) != sizeof rank) return false;
  if (rank > me.rank && rank < me.ranks) return Adopt(in, rank);
  close(in);
  std::lock_guard<std::mutex> lock(mutex);
  Wrong(Name() + ": a rank " + std::to_string(rank) + " came, so the ranks disagree about their number", -1);
  return false;
}

// Both sides tell which device they are before anything else.
bool Communicator::Adopt(int socket, int rank) {
  std::vector<Message> came;
  {
    std::lock_guard<std::mutex> lock(mutex);
    Link& link = links[static_cast<size_t>(rank)];
    link.Open(socket);
    link.Send(Kind::kHello, DeviceName(device));
  }
  const bool greeted = WaitFor(
      [&] {
        std::lock_guard<std::mutex> lock(mutex);
        const bool alive = links[static_cast<size_t>(rank)].Pump(&came);  // it may greet and leave at once
        if (!alive && came.empty()) Fail(ncclRemoteError, Name() + ": rank " + std::to_string(rank) + " is gone");
        return !came.empty();
      },
      "rank " + std::to_string(rank) + " to greet");
  if (!greeted) return false;
  std::lock_guard<std::mutex> lock(mutex);
  TakeMessages(rank, &came);
  return true;
}

void Communicator::Serve() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!closing_ || (bye_sent_ && std::any_of(links.begin(), links.end(),
                                                [](const Link& l) { return !l.dead && l.wants_to_write(); }))) {
    std::vector<pollfd> fds{{wake_, POLLIN, 0}};
    for (const Link& link : links) {
      if (!link.open() || link.dead) continue;
      fds.push_back({link.socket(), static_cast<short>(POLLIN | (link.wants_to_write() ? POLLOUT : 0)), 0});
    }
    lock.unlock();
    poll(fds.data(), fds.size(), kPollMs);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(wake_, &count, sizeof count);
    lock.lock();
    for (size_t rank = 0; rank < links.size(); ++rank) {
      Link& link = links[rank];
      if (!link.open() || link.dead) continue;
      std::vector<Message> came;
      const bool alive = link.Pump(&came);
      TakeMessages(static_cast<int>(rank), &came);
      if (!alive && !link.said_bye && !aborted) {
        Fail(ncclRemoteError, Name() + ": rank " + std::to_string(rank) + " is gone");
      }
    }
    RunLater(lock);
  }
  std::vector<Message> nobody_reads;  // what was found wrong still goes out
  for (Link& link : links) link.Pump(&nobody_reads);
}

void Communicator::TakeMessages(int rank, std::vector<Message>* messages) {
  Link& link = links[static_cast<size_t>(rank)];
  for (Message& message : *messages) {
    const Message::Head& head = message.head;
    switch (head.kind) {
      case Kind::kHello:
        link.device = message.body;
        break;
      case Kind::kReady:
        link.ready.push_back(std::move(message));
        break;
      case Kind::kData:
        link.data.push_back(std::move(message));
        break;
      case Kind::kLaunched:
        for (int i = 0; settings.check_order && i < head.sends + head.receives; ++i) {
          // What it sends is what we receive.
          const std::string found =
              OrderOf(device).Add(link.device, me.id, i >= head.sends, /*own=*/false, {head.number, message.body});
          if (!found.empty()) Wrong(Name() + ": " + found, rank);
        }
        break;
      case Kind::kBegun:
        link.doing = message.body;
        break;
      case Kind::kWrong:
        Fail(ncclInvalidUsage, Name() + ": told by rank " + std::to_string(rank) + ": " + message.body);
        break;
      case Kind::kSplit:
        splits_[head.number][rank] = {head.sends, head.receives};
        break;
      case Kind::kBye:
        link.said_bye = true;
        break;
    }
  }
  if (!messages->empty()) changed.notify_all();
}

// What a non-blocking communicator's calls left to do.
void Communicator::RunLater(std::unique_lock<std::mutex>& lock) {
  while (!later_.empty() && !aborted && later_.front().when <= Clock::now()) {
    const auto enqueue = later_.front().enqueue;
    lock.unlock();
    const ncclResult_t result = enqueue();
    lock.lock();
    if (!later_.empty()) later_.pop_front();
    if (result != ncclSuccess && state == ncclInProgress) state = result;
    if (later_.empty() && state == ncclInProgress) state = ncclSuccess;
    changed.notify_all();
  }
}

}  // namespace host_cuda::nccl
