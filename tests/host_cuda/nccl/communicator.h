// One rank of a communicator: its connections, the thread that moves their bytes, and the operations in the order of
// their launches.
//
// The thread (NCCL's proxy) connects, reads and writes sockets, notices that a peer died, and, on a non-blocking
// communicator, puts operations on their streams a little later than the call. Operations are stepped by the device
// thread (operation.h). States are NCCL's: ncclInProgress until all ranks have come; then ncclSuccess; an error stays,
// and operations that need the others never end until ncclCommAbort.
//
// Lock order: a communicator's mutex, then the runtime's.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/host_cuda/nccl/link.h"

namespace host_cuda::nccl {

// HOST_CUDA_NCCL_TIMEOUT_MS   what waits longer is reported, once, with what the peer is doing (20000)
// HOST_CUDA_NCCL_STALL        "rank:n:ms,...": that rank begins its n-th operation (from 1) so much later
// HOST_CUDA_NCCL_ORDER        ignore: no report of opposite launch orders (see launch_order.h)
struct NcclSettings {
  std::chrono::milliseconds timeout{20000};
  std::map<std::pair<int, uint64_t>, std::chrono::milliseconds> stalls;
  bool check_order = true;
};
NcclSettings NcclSettingsFromEnvironment();

struct Factor;  // plans.h

// Whom a communicator is among; known at once, or, of a split, after the ranks have told each other.
struct Membership {
  std::string id;
  int rank = 0, ranks = 0;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;

  Communicator(int device, bool blocking);
  ~Communicator();

  // `who` runs on the communicator's thread; false: it will not be.
  void Start(std::function<bool(Membership*)> who);
  ncclResult_t WaitReady();  // until it is no longer in progress

  // A call on it: the error that it has to return, if any.
  ncclResult_t Usable(const char* call);

  // The n-th operation: announces it to `peers` (rank -> sends, receives) and gives its index.
  uint64_t Announce(const Signature& signature, const std::map<int, std::pair<int, int>>& peers);

  // Puts it on its stream: now, or, non-blocking, soon.
  ncclResult_t Submit(std::function<ncclResult_t()> enqueue);

  // (colour, key) of every rank in that split; false: it failed.
  bool ExchangeSplit(uint64_t number, int colour, int key, std::vector<std::pair<int, int>>* all);
  uint64_t NextSplit() { return splits_begun_++; }

  // ncclCommFinalize of a non-blocking communicator: in progress until the operations are done and the goodbye is said.
  ncclResult_t BeginFinish();
  // The same, and waits for it. Ends also when a peer is gone, with the error, or when the device is stuck.
  ncclResult_t Finish(const char* call);
  void Abort();
  void Close();  // ends the thread and what it still had to do; no call may follow

  // Of ncclRedOpCreatePreMulSum, by numbers that are no ncclRedOp_t otherwise.
  uint32_t AddFactor(std::shared_ptr<const Factor> factor);
  std::shared_ptr<const Factor> FindFactor(uint32_t number);
  bool RemoveFactor(uint32_t number);

  // Something that no rank may do: reported; ends the process or becomes the communicator's error, here and at `peer`.
  // With the mutex held.
  void Wrong(const std::string& text, int peer);
  void Fail(ncclResult_t error, const std::string& text);
  void Remark(const std::string& text);  // reported and the last error's text, but no error of the communicator

  std::string Name() const;  // "rank 0 of 2 on communicator ab12cd34"

  const int device;
  const bool blocking;
  const NcclSettings settings = NcclSettingsFromEnvironment();
  Membership me;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  ncclResult_t state = ncclInProgress;
  bool aborted = false;
  std::vector<Link> links;
  uint64_t announced = 0, finished = 0;
  std::string last_error;

  void Wake();  // the thread has something to write

 private:
  struct Later {
    Clock::time_point when;
    std::function<ncclResult_t()> enqueue;
  };
  void Run(std::function<bool(Membership*)> who);
  bool Connect();
  bool Listen(int* listener);
  bool Reach(int rank);
  bool AcceptOne(int listener);
  bool Adopt(int socket, int rank);
  bool WaitFor(const std::function<bool()>& attempt, const std::string& what);
  void Serve();
  void TakeMessages(int rank, std::vector<Message>* messages);
  void PumpLinks();
  void RunLater(std::unique_lock<std::mutex>& lock);
  bool Broken() const { return aborted || (state != ncclSuccess && state != ncclInProgress); }
  bool AllDone() const { return later_.empty() && finished == announced; }
  void SayGoodbye();
  void FinishWhenDone();

  std::thread thread_;
  int wake_ = -1;  // an eventfd
  bool closing_ = false, finishing_ = false, bye_sent_ = false;
  std::map<uint32_t, std::shared_ptr<const Factor>> factors_;
  uint32_t factors_made_ = 0;
  std::deque<Later> later_;
  std::mt19937 random_;
  uint64_t splits_begun_ = 0;
  std::map<uint64_t, std::map<int, std::pair<int, int>>> splits_;
};

// The latest error or remark of the process's communicators.
std::string LastRemark();

// The next number of a launch on that device of this process.
uint64_t NextLaunch(int device);

}  // namespace host_cuda::nccl
