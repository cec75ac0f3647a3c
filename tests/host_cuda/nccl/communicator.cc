#include "tests/host_cuda/nccl/communicator.h"

#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/eventfd.h>
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

struct LatestRemark {
  std::mutex mutex;
  std::string text;
};
LatestRemark& TheRemark() {
  static auto& remark = *new LatestRemark;
  return remark;
}

}  // namespace

std::string LastRemark() {
  std::lock_guard<std::mutex> lock(TheRemark().mutex);
  return TheRemark().text;
}

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
  if (finishing_ || bye_sent_) {
    Remark(std::string(call) + " on " + Name() + " after ncclCommFinalize");
    return ncclInvalidArgument;
  }
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

ncclResult_t Communicator::BeginFinish() {
  std::lock_guard<std::mutex> lock(mutex);
  if (aborted) return ncclInvalidArgument;
  if (Broken()) return state;
  if (finishing_) return ncclInvalidArgument;
  finishing_ = true;
  state = ncclInProgress;
  Wake();
  return ncclInProgress;
}

ncclResult_t Communicator::Finish(const char* call) {
  std::unique_lock<std::mutex> lock(mutex);
  const auto begun = Clock::now();
  bool said = false;
  while (!bye_sent_) {
    if (Broken()) return aborted ? ncclInvalidArgument : state;
    if (AllDone() && state == ncclSuccess) {
      SayGoodbye();
      break;
    }
    if (StuckWith(device) != cudaSuccess) return ncclUnhandledCudaError;  // it finishes nothing any more
    if (!said && Clock::now() - begun > settings.timeout) {
      said = true;
      Remark(std::string(call) + " on " + Name() + " waits for " + std::to_string(announced - finished) +
             " operations since " + std::to_string(settings.timeout.count()) + " ms (ncclCommAbort gives them up)");
    }
    changed.wait_for(lock, std::chrono::milliseconds(kPollMs));
  }
  return ncclSuccess;
}

void Communicator::SayGoodbye() {
  bye_sent_ = true;
  for (Link& link : links) {
    if (link.open()) link.Send(Kind::kBye);
  }
  Wake();
}

void Communicator::FinishWhenDone() {
  if (!finishing_ || bye_sent_ || Broken()) return;
  if (AllDone()) {
    SayGoodbye();
    state = ncclSuccess;
    changed.notify_all();
  } else if (const cudaError_t stuck = StuckWith(device); stuck != cudaSuccess) {
    Fail(ncclUnhandledCudaError, Name() + ": its device is stuck with " + cudaGetErrorName(stuck));
  }
}

uint32_t Communicator::AddFactor(std::shared_ptr<const Factor> factor) {
  std::lock_guard<std::mutex> lock(mutex);
  const uint32_t number = ncclNumOps + 1 + factors_made_++;
  factors_[number] = std::move(factor);
  return number;
}

std::shared_ptr<const Factor> Communicator::FindFactor(uint32_t number) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = factors_.find(number);
  return found == factors_.end() ? nullptr : found->second;
}

bool Communicator::RemoveFactor(uint32_t number) {
  std::lock_guard<std::mutex> lock(mutex);
  return factors_.erase(number) != 0;
}

void Communicator::Abort() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    later_.clear();
    aborted = true;
    changed.notify_all();
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
  aborted = true;  // operations that could not be done leave their streams
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
  {
    std::lock_guard<std::mutex> lock(TheRemark().mutex);
    TheRemark().text = text;
  }
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

// Writes and reads what there is.
void Communicator::PumpLinks() {
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
    PumpLinks();
    RunLater(lock);
    FinishWhenDone();
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
    if (later_.empty() && state == ncclInProgress && !finishing_) state = ncclSuccess;
    changed.notify_all();
  }
}

}  // namespace host_cuda::nccl
