#include "bench/kv_transfer/copy_pipeline.h"

#include <arpa/inet.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <span>

#include "glog/logging.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace sluice::bench {
namespace {

using kvtransfer::PieceBytes;

constexpr int kSpins = 2000;

// The endpoints' own copying sums on the way; a limit must not.
template <typename Copy>
void ForEachRun(const v1::Piece& piece, const Load& load, Copy copy) {
  const kernels::KvLayout& layout = load.kv.layout;
  const size_t bytes = size_t(piece.head_end() - piece.head_begin()) * layout.head_bytes();
  for (int layer = piece.layer_begin(); layer < piece.layer_end(); ++layer) {
    std::byte* region = load.kv.layer_data(layer);
    for (int b = piece.block_begin(); b < piece.block_end(); ++b) {
      for (int is_v = 0; is_v < 2; ++is_v) {
        copy(region + layout.offset(load.blocks[size_t(b)], is_v, piece.head_begin(), 0), bytes);
      }
    }
  }
}

void GatherPlain(const v1::Piece& piece, const Load& load, std::byte* to) {
  ForEachRun(piece, load, [&to](const std::byte* run, size_t bytes) {
    std::memcpy(to, run, bytes);
    to += bytes;
  });
}

void ScatterPlain(const v1::Piece& piece, const Load& load, const std::byte* from) {
  ForEachRun(piece, load, [&from](std::byte* run, size_t bytes) {
    std::memcpy(run, from, bytes);
    from += bytes;
  });
}

class Ring final : public CopyPipeline {
 public:
  explicit Ring(const kvtransfer::ChannelLimits& limits) : limits_(limits) {
    void* memory = mmap(nullptr, sizeof(Counters) + size_t(limits.window) * limits.max_piece_bytes,
                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PCHECK(memory != MAP_FAILED);
    counters_ = new (memory) Counters();
    slots_ = static_cast<std::byte*>(memory) + sizeof(Counters);
  }

  void Send(const Load& load) override {
    for (const v1::Piece& piece : load.pieces) {
      Await(counters_->landed, next_ - uint32_t(limits_.window) + 1);
      GatherPlain(piece, load, Slot());
      Raise(counters_->sent);
      ++next_;
    }
    Await(counters_->landed, next_);
  }

  void Receive(const Load& load) override {
    for (const v1::Piece& piece : load.pieces) {
      Await(counters_->sent, next_ + 1);
      ScatterPlain(piece, load, Slot());
      Raise(counters_->landed);
      ++next_;
    }
  }

 private:
  struct alignas(4096) Counters {
    alignas(64) std::atomic<uint32_t> sent;
    alignas(64) std::atomic<uint32_t> landed;
  };

  std::byte* Slot() const { return slots_ + (next_ % uint32_t(limits_.window)) * limits_.max_piece_bytes; }

  // Until the counter has reached the value.
  static void Await(std::atomic<uint32_t>& counter, uint32_t value) {
    for (int spin = 0;; ++spin) {
      const uint32_t seen = counter.load(std::memory_order_acquire);
      if (int32_t(seen - value) >= 0) return;
      if (spin < kSpins) {
        _mm_pause();
      } else {
        syscall(SYS_futex, &counter, FUTEX_WAIT, seen, nullptr, nullptr, 0);
      }
    }
  }

  static void Raise(std::atomic<uint32_t>& counter) {
    counter.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  const kvtransfer::ChannelLimits limits_;
  Counters* counters_;
  std::byte* slots_;   // [window][max_piece_bytes]
  uint32_t next_ = 0;  // this process's
};

class Sockets final : public CopyPipeline {
 public:
  explicit Sockets(const kvtransfer::ChannelLimits& limits) : buffer_(limits.max_piece_bytes) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    PCHECK(listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
    PCHECK(listen(listener, kvtransfer::kTcpConnections) == 0);
    PCHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    for (int i = 0; i < kvtransfer::kTcpConnections; ++i) {
      const int to = socket(AF_INET, SOCK_STREAM, 0);
      PCHECK(to >= 0 && connect(to, reinterpret_cast<sockaddr*>(&address), length) == 0);
      const int from = accept(listener, nullptr, nullptr);
      PCHECK(from >= 0);
      kvtransfer::SetNoDelay(to);
      kvtransfer::SetNoDelay(from);
      to_.push_back(to);
      from_.push_back(from);
    }
    close(listener);
  }

  void Send(const Load& load) override {
    size_t turn = 0;
    for (const v1::Piece& piece : load.pieces) {
      const std::span<std::byte> bytes = std::span(buffer_).first(PieceBytes(piece, load.kv.layout));
      GatherPlain(piece, load, bytes.data());
      for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = send(to_[turn], bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        PCHECK(n > 0);
        done += size_t(n);
      }
      turn = (turn + 1) % to_.size();
    }
    char landed = 0;
    PCHECK(recv(to_[0], &landed, 1, MSG_WAITALL) == 1);
  }

  void Receive(const Load& load) override {
    size_t turn = 0;
    for (const v1::Piece& piece : load.pieces) {
      const std::span<std::byte> bytes = std::span(buffer_).first(PieceBytes(piece, load.kv.layout));
      for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = recv(from_[turn], bytes.data() + done, bytes.size() - done, 0);
        PCHECK(n > 0);
        done += size_t(n);
      }
      ScatterPlain(piece, load, bytes.data());
      turn = (turn + 1) % from_.size();
    }
    const char landed = 1;
    PCHECK(send(from_[0], &landed, 1, MSG_NOSIGNAL) == 1);
  }

 private:
  std::vector<int> to_,
      from_;  // [connections], both ends until the fork and after it: a dead peer is the parent's matter
  std::vector<std::byte> buffer_;  // each process's own, since the fork
};

}  // namespace

std::unique_ptr<CopyPipeline> ShmPipeline(const kvtransfer::ChannelLimits& limits) {
  return std::make_unique<Ring>(limits);
}

std::unique_ptr<CopyPipeline> TcpPipeline(const kvtransfer::ChannelLimits& limits) {
  return std::make_unique<Sockets>(limits);
}

}  // namespace sluice::bench
