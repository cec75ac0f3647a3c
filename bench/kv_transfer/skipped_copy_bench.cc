// An experiment, not product code: would the TCP path gain by leaving out a copy? One connection, two processes, the KV
// of a prompt of the default model, in turns:
//
//   copies    gather into a buffer, send | receive into a buffer, scatter     (what the TCP channel does)
//   iovec     sendmsg straight out of the pool's runs | recvmsg straight into them
//   zerocopy  gather into a buffer, send with MSG_ZEROCOPY | receive, scatter
//
//   kv_skipped_copy_bench [--rounds N] [--address A --namespace NAME]
//
// With --namespace the receiver lives in that network namespace and listens on the address.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/kv_transfer/pools.h"
#include "glog/logging.h"

namespace sluice::bench {
namespace {

enum Way { kCopies, kIovec, kZeroCopy, kWays };
constexpr const char* kNames[] = {"copies", "iovec", "zerocopy"};
constexpr int64_t kPiece = int64_t{8} << 20;
constexpr size_t kMostParts = 512;  // of one sendmsg; the system allows 1,024

double CpuSeconds() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * double(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

// The piece's runs in the pool, in wire order.
std::vector<iovec> RunsOf(const v1::Piece& piece, const kvtransfer::PoolView& kv, const std::vector<int32_t>& blocks) {
  std::vector<iovec> runs;
  for (int l = piece.layer_begin(); l < piece.layer_end(); ++l) {
    for (int b = piece.block_begin(); b < piece.block_end(); ++b) {
      for (int is_v = 0; is_v < 2; ++is_v) {
        runs.push_back({kv.layer_data(l) + kv.layout.offset(blocks[size_t(b)], is_v, 0, 0), kv.layout.plane_bytes()});
      }
    }
  }
  return runs;
}

// Calls move(parts) until all bytes of the runs are moved; it returns how many it did.
void MoveAll(std::vector<iovec> runs, const std::function<ssize_t(msghdr*)>& move) {
  size_t first = 0;
  while (first < runs.size()) {
    msghdr message = {};
    message.msg_iov = &runs[first];
    message.msg_iovlen = std::min(kMostParts, runs.size() - first);
    ssize_t n = move(&message);
    PCHECK(n > 0);
    while (n > 0 && size_t(n) >= runs[first].iov_len) n -= ssize_t(runs[first++].iov_len);
    if (n > 0) runs[first] = {static_cast<char*>(runs[first].iov_base) + n, runs[first].iov_len - size_t(n)};
  }
}

class End {
 public:
  End(const Shape& shape, uint64_t seed, uint64_t order)
      : shape_(shape),
        pool_(shape, seed),
        kv_(pool_.view()),
        blocks_(RandomBlocks(shape, shape.prompt_blocks, order)),
        pieces_(PiecesOf(shape, shape.prompt_blocks, kPiece)),
        buffers_{std::vector<std::byte>(kPiece), std::vector<std::byte>(kPiece)} {}

  void Send(int socket, Way way) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      std::vector<iovec> runs = RunsOf(pieces_[i], kv_, blocks_);
      std::vector<std::byte>& buffer = buffers_[i % 2];
      if (way != kIovec) {
        // With MSG_ZEROCOPY the buffer belongs to the system until it says otherwise.
        if (way == kZeroCopy) AwaitReleased(socket, i < 2 ? 0 : sends_after_[i % 2]);
        runs = {{buffer.data(), Gather(runs, buffer)}};
      }
      MoveAll(runs, [&](msghdr* m) {
        sends_ += way == kZeroCopy;
        return sendmsg(socket, m, MSG_NOSIGNAL | (way == kZeroCopy ? MSG_ZEROCOPY : 0));
      });
      sends_after_[i % 2] = sends_;
    }
    if (way == kZeroCopy) AwaitReleased(socket, sends_);
    char landed;
    PCHECK(recv(socket, &landed, 1, MSG_WAITALL) == 1);
  }

  void Receive(int socket, Way way) {
    for (const v1::Piece& piece : pieces_) {
      const std::vector<iovec> runs = RunsOf(piece, kv_, blocks_);
      std::vector<std::byte>& buffer = buffers_[0];
      const std::vector<iovec> whole = {{buffer.data(), kvtransfer::PieceBytes(piece, kv_.layout)}};
      MoveAll(way == kIovec ? runs : whole, [&](msghdr* m) { return recvmsg(socket, m, 0); });
      size_t at = 0;
      for (const iovec& run : runs) {
        if (way != kIovec) std::memcpy(run.iov_base, buffer.data() + at, run.iov_len);
        at += run.iov_len;
      }
    }
    const char landed = 1;
    PCHECK(send(socket, &landed, 1, MSG_NOSIGNAL) == 1);
  }

  uint64_t Sum() const { return pool_.Sum(blocks_); }
  double gb() const { return 1e-9 * double(shape_.layout.block_bytes_all_layers()) * shape_.prompt_blocks; }
  uint32_t sends() const { return sends_; }
  uint32_t copied() const { return copied_; }

 private:
  static size_t Gather(const std::vector<iovec>& runs, std::vector<std::byte>& buffer) {
    size_t at = 0;
    for (const iovec& run : runs) {
      std::memcpy(buffer.data() + at, run.iov_base, run.iov_len);
      at += run.iov_len;
    }
    return at;
  }

  // Until the system has let go of the first `sends` sends; counts those that it copied all the same.
  void AwaitReleased(int socket, uint32_t sends) {
    while (released_ < sends) {
      char control[128];
      msghdr message = {};
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      if (recvmsg(socket, &message, MSG_ERRQUEUE) < 0) {
        PCHECK(errno == EAGAIN);
        sched_yield();
        continue;
      }
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        sock_extended_err e;
        std::memcpy(&e, CMSG_DATA(c), sizeof e);
        if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
        released_ += e.ee_data - e.ee_info + 1;
        if (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) copied_ += e.ee_data - e.ee_info + 1;
      }
    }
  }

  const Shape shape_;
  const Pool pool_;
  const kvtransfer::PoolView kv_;
  const std::vector<int32_t> blocks_;
  const std::vector<v1::Piece> pieces_;
  std::vector<std::byte> buffers_[2];
  uint32_t sends_ = 0, released_ = 0, copied_ = 0;
  uint32_t sends_after_[2] = {0, 0};
};

struct Told {
  uint64_t sum;
  double cpu;
};

[[noreturn]] void Receiver(int to_parent, int rounds, const std::string& address, const std::string& space) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!space.empty()) {
    const int fd = open(("/run/netns/" + space).c_str(), O_RDONLY);
    PCHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0) << "no namespace " << space;
  }
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  CHECK_EQ(inet_pton(AF_INET, address.c_str(), &at.sin_addr), 1) << address;
  socklen_t length = sizeof at;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  PCHECK(bind(listener, reinterpret_cast<sockaddr*>(&at), length) == 0 && listen(listener, 1) == 0);
  PCHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length) == 0);
  PCHECK(write(to_parent, &at, sizeof at) == sizeof at);
  const int from = accept(listener, nullptr, nullptr);
  End end(Shapes()[0], 0, 1);
  for (int i = 0; i < rounds * kWays; ++i) {
    const double cpu = CpuSeconds();
    end.Receive(from, Way(i % kWays));
    const Told told{i < kWays ? end.Sum() : 0, CpuSeconds() - cpu};
    PCHECK(write(to_parent, &told, sizeof told) == sizeof told);
  }
  _exit(0);
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int Main(int argc, char** argv) {
  int rounds = 15;
  std::string address = "127.0.0.1", space;
  CLI::App app("Whether a TCP transfer of KV gains by leaving out a copy");
  app.add_option("--rounds", rounds, "Rounds that count")->capture_default_str();
  app.add_option("--address", address, "The receiver's")->capture_default_str();
  app.add_option("--namespace", space, "Network namespace of the receiver");
  CLI11_PARSE(app, argc, argv);
  int pipe[2];
  PCHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pipe) == 0);
  const pid_t child = fork();
  PCHECK(child >= 0);
  if (child == 0) {
    close(pipe[0]);
    Receiver(pipe[1], rounds + 1, address, space);
  }
  close(pipe[1]);
  sockaddr_in at;
  CHECK_EQ(read(pipe[0], &at, sizeof at), ssize_t(sizeof at)) << "the receiver has ended";
  const int to = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  PCHECK(setsockopt(to, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
  PCHECK(connect(to, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  End end(Shapes()[0], 1, 0);
  const uint64_t sum = end.Sum();
  std::vector<double> gbs[kWays], ratio[kWays], cpu[kWays];
  for (int i = 0; i < (rounds + 1) * kWays; ++i) {
    const Way way = Way(i % kWays);
    const double before = CpuSeconds();
    const auto began = std::chrono::steady_clock::now();
    end.Send(to, way);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const double mine = CpuSeconds() - before;
    Told told;
    CHECK_EQ(read(pipe[0], &told, sizeof told), ssize_t(sizeof told)) << "the receiver has ended";
    if (i < kWays) {
      CHECK_EQ(told.sum, sum) << kNames[way] << ": other bytes have landed than were sent";
      continue;
    }
    gbs[way].push_back(end.gb() / took);
    ratio[way].push_back(gbs[way].back() / gbs[kCopies].back());
    cpu[way].push_back((mine + told.cpu) / end.gb());
  }
  for (int way = 0; way < kWays; ++way) {
    std::printf("%-9s %5.2f GB/s, %.2f of copies, CPU %.2f s/GB\n", kNames[way], Median(gbs[way]), Median(ratio[way]),
                Median(cpu[way]));
  }
  std::printf("the system copied %u of %u MSG_ZEROCOPY sends all the same\n", end.copied(), end.sends());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::Main(argc, argv);
}
