// The connection to one other rank: messages over a unix socket, in order. Reads and writes without blocking.
// Not thread-safe: its communicator's mutex guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tests/host_cuda/nccl/signature.h"

namespace host_cuda::nccl {

enum class Kind : uint32_t {
  kHello,     // body: which device this is
  kReady,     // the receiver of a transfer has come
  kData,      // body: its bytes
  kLaunched,  // number: of the launch on its device; sends, receives: transfers to this rank; body: what it is
  kBegun,     // body: the operation that the rank is in now
  kWrong,     // body: what the other rank found wrong
  kSplit,     // number: of the split; sends: colour, receives: key
  kBye,
};

struct Message {
  struct Head {
    Kind kind = Kind::kHello;
    int32_t sends = 0, receives = 0;
    uint64_t number = 0, body_bytes = 0;
    Signature signature;
  } head;
  std::string body;
};

class Link {
 public:
  void Open(int socket) { socket_ = socket; }
  void Close();
  int socket() const { return socket_; }
  bool open() const { return socket_ >= 0; }
  bool wants_to_write() const { return sent_ < out_.size(); }

  void Send(Kind kind, std::string_view body = {}, const Signature& signature = {}, uint64_t number = 0,
            int32_t sends = 0, int32_t receives = 0);
  void Flush();  // writes what can be written now
  // Flushes, and takes what came; false: the other end is gone.
  bool Pump(std::vector<Message>* came);

  // What waits here for the operation that needs it.
  std::deque<Message> ready, data;
  std::string device;  // the other rank's
  std::string doing;   // what it began last
  bool said_bye = false, dead = false;

 private:
  int socket_ = -1;
  std::string in_, out_;
  size_t sent_ = 0;
};

}  // namespace host_cuda::nccl
