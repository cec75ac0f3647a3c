// Bytes per second of a KV transfer between two processes, as a share of what two processes that only copy reach.
//
//   kv_bandwidth_bench [--rounds N] [--json FILE] ...
//
// One process forks before it has threads: the parent is the prefill side, the child the decode side. In every round
// each limit and each pair of endpoints moves the KV of one prompt between random blocks, in turns; a share is of two
// neighbours in a round. The first round is not counted, and in it the bytes that landed are compared.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/kv_transfer/copy_pipeline.h"
#include "bench/kv_transfer/endpoint_pair.h"
#include "bench/kv_transfer/pools.h"
#include "glog/logging.h"

namespace sluice::bench {
namespace {

struct Flags {
  int rounds = 21;
  std::string json;
  std::string shape, channel;  // empty: all
  kvtransfer::Receiver::Options receiver;
};

enum class Channel { kShm, kTcp };
constexpr Channel kChannels[] = {Channel::kShm, Channel::kTcp};
const char* Name(Channel channel) {
  return channel == Channel::kShm ? "shm" : "tcp";
}

// What the parent asks of the child.
struct Command {
  enum Kind { kStart, kLimit, kExpect, kFinish, kEnd } kind = kEnd;
  int shape = 0;
  Channel channel = Channel::kShm;
  int leases = 1;
  uint64_t round = 0;
};

struct Reply {
  int port = 0;
  uint64_t sum = 0;  // of what landed, in the first round
  double cpu = 0;    // seconds of the process since the measurement began
};

template <typename T>
void Put(int socket, const T& value) {
  PCHECK(write(socket, &value, sizeof value) == sizeof value);
}

template <typename T>
T Take(int socket) {
  T value;
  const ssize_t n = read(socket, &value, sizeof value);
  CHECK_EQ(n, ssize_t(sizeof value)) << "the other process has ended";
  return value;
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// The lease ids of a measurement; the channel's pairs are apart, so they may repeat between channels.
uint64_t LeaseOf(const Command& c, int index) {
  return (c.round * 16 + uint64_t(c.leases)) * 16 + uint64_t(index) + 1;
}

// The prompt's blocks on one side, shared out among the leases.
std::vector<std::vector<int32_t>> BlocksOf(const Shape& shape, const Command& c, bool decode) {
  const std::vector<int32_t> all = RandomBlocks(shape, shape.prompt_blocks, c.round * 2 + decode);
  std::vector<std::vector<int32_t>> parts(size_t(c.leases));
  for (size_t i = 0; i < all.size(); ++i) parts[i * parts.size() / all.size()].push_back(all[i]);
  return parts;
}

uint64_t SumOf(const Pool& pool, const Shape& shape, const Command& c, bool decode) {
  return c.round > 0 ? 0 : pool.Sum(RandomBlocks(shape, shape.prompt_blocks, decode));
}

// Both processes have one, since before the fork; each uses its side of it.
struct Pipelines {
  std::unique_ptr<CopyPipeline> shm, tcp;
  CopyPipeline& of(Channel channel) { return channel == Channel::kShm ? *shm : *tcp; }
};

[[noreturn]] void DecodeProcess(int socket, const Flags& flags, Pipelines& pipelines) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::vector<Shape> shapes = Shapes();
  int current = -1;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<DecodeSide> sides[2];
  double cpu = 0;
  while (true) {
    const auto c = Take<Command>(socket);
    if (c.kind == Command::kEnd) break;
    const Shape& shape = shapes[size_t(c.shape)];
    std::unique_ptr<DecodeSide>& side = sides[c.channel == Channel::kTcp];
    Reply reply;
    switch (c.kind) {
      case Command::kStart:
        if (c.shape != current) {
          for (auto& s : sides) s.reset();
          pool.reset();
          pool = std::make_unique<Pool>(shape, 0);
          current = c.shape;
        }
        side = std::make_unique<DecodeSide>(shape, *pool, PairOptions{Name(c.channel), flags.receiver});
        reply.port = side->port();
        break;
      case Command::kLimit: {
        const std::vector<v1::Piece> pieces = PiecesOf(shape, shape.prompt_blocks, flags.receiver.max_piece_bytes);
        const auto blocks = BlocksOf(shape, c, true);
        cpu = CpuSeconds();
        Put(socket, Reply());
        pipelines.of(c.channel).Receive({pool->view(), pieces, blocks[0]});
        reply.cpu = CpuSeconds() - cpu;
        reply.sum = SumOf(*pool, shape, c, true);
        break;
      }
      case Command::kExpect: {
        const auto blocks = BlocksOf(shape, c, true);
        for (int i = 0; i < c.leases; ++i) side->Expect(LeaseOf(c, i), blocks[size_t(i)]);
        cpu = CpuSeconds();
        break;
      }
      case Command::kFinish:
        reply.cpu = CpuSeconds() - cpu;
        for (int i = 0; i < c.leases; ++i) {
          const absl::Status end = side->AwaitEnd(LeaseOf(c, i));
          CHECK(end.ok()) << end;
        }
        reply.sum = SumOf(*pool, shape, c, true);
        break;
      default:
        break;
    }
    Put(socket, reply);
  }
  for (auto& s : sides) s.reset();
  _exit(0);
}

// What was measured of one way to move the bytes.
struct Series {
  std::string name;
  std::vector<double> gbs;
  std::vector<double> cpu_prefill, cpu_decode;  // seconds a GB
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

class PrefillProcess {
 public:
  PrefillProcess(int socket, const Flags& flags, Pipelines& pipelines)
      : socket_(socket), flags_(flags), pipelines_(pipelines) {}

  void Run() {
    for (int shape = 0; shape < int(shapes_.size()); ++shape) {
      if (flags_.shape.empty() || flags_.shape == shapes_[size_t(shape)].name) Measure(shape);
    }
    Put(socket_, Command());
    if (!flags_.json.empty())
      std::ofstream(flags_.json) << "{\"rounds\": " << flags_.rounds << ", \"series\": [" << json_ << "]}\n";
  }

 private:
  static constexpr int kLeases[] = {1, 4};

  void Measure(int index) {
    const Shape& shape = shapes_[size_t(index)];
    const Pool pool(shape, 1);
    std::unique_ptr<PrefillSide> sides[2];
    for (const Channel channel : kChannels) {
      const Reply started = Ask({Command::kStart, index, channel, 1, 0});
      sides[channel == Channel::kTcp] =
          std::make_unique<PrefillSide>(shape, pool, PairOptions{Name(channel), flags_.receiver}, started.port);
    }
    for (const Channel channel : kChannels) {
      if (!flags_.channel.empty() && flags_.channel != Name(channel)) continue;
      Series limit{std::string(Name(channel)) + " limit", {}, {}, {}};
      std::vector<Series> real;
      for (const int leases : kLeases) {
        real.push_back(
            {std::string(Name(channel)) + ", " + std::to_string(leases) + (leases == 1 ? " lease" : " leases"),
             {},
             {},
             {}});
      }
      for (uint64_t round = 0; round <= uint64_t(flags_.rounds); ++round) {
        Limit(pool, {Command::kLimit, index, channel, 1, round}, limit);
        for (size_t i = 0; i < real.size(); ++i) {
          Real(*sides[channel == Channel::kTcp], pool, {Command::kExpect, index, channel, kLeases[i], round}, real[i]);
        }
      }
      Report(shape, limit, limit);
      for (const Series& series : real) Report(shape, series, limit);
    }
  }

  Reply Ask(const Command& command) {
    Put(socket_, command);
    return Take<Reply>(socket_);
  }

  void Limit(const Pool& pool, const Command& c, Series& series) {
    const Shape& shape = shapes_[size_t(c.shape)];
    const std::vector<v1::Piece> pieces = PiecesOf(shape, shape.prompt_blocks, flags_.receiver.max_piece_bytes);
    const auto blocks = BlocksOf(shape, c, false);
    Ask(c);  // it is about to receive
    const double cpu = CpuSeconds();
    const auto began = std::chrono::steady_clock::now();
    pipelines_.of(c.channel).Send({pool.view(), pieces, blocks[0]});
    Add(shape, began, cpu, Take<Reply>(socket_), SumOf(pool, shape, c, false), c, series);
  }

  void Real(PrefillSide& side, const Pool& pool, Command c, Series& series) {
    const Shape& shape = shapes_[size_t(c.shape)];
    const auto blocks = BlocksOf(shape, c, false);
    Ask(c);
    std::vector<std::pair<uint64_t, int>> run;
    for (int i = 0; i < c.leases; ++i) {
      side.Open(LeaseOf(c, i), blocks[size_t(i)]);
      run.emplace_back(LeaseOf(c, i), int(blocks[size_t(i)].size()));
    }
    const double cpu = CpuSeconds();
    const auto began = std::chrono::steady_clock::now();
    const absl::Status ended = side.Run(run);
    CHECK(ended.ok()) << ended;
    last_ = std::chrono::steady_clock::now();
    c.kind = Command::kFinish;
    Add(shape, began, cpu, Ask(c), SumOf(pool, shape, c, false), c, series);
  }

  void Add(const Shape& shape, std::chrono::steady_clock::time_point began, double cpu, const Reply& reply,
           uint64_t sum, const Command& c, Series& series) {
    const auto ended = c.kind == Command::kLimit ? std::chrono::steady_clock::now() : last_;
    if (c.round == 0) {
      CHECK_EQ(reply.sum, sum) << series.name << ": other bytes have landed than were sent";
      return;
    }
    const double gb = 1e-9 * double(shape.layout.block_bytes_all_layers()) * shape.prompt_blocks;
    series.gbs.push_back(gb / std::chrono::duration<double>(ended - began).count());
    series.cpu_prefill.push_back((CpuSeconds() - cpu) / gb);
    series.cpu_decode.push_back(reply.cpu / gb);
  }

  void Report(const Shape& shape, const Series& series, const Series& limit) {
    std::vector<double> shares;
    for (size_t i = 0; i < series.gbs.size(); ++i) shares.push_back(series.gbs[i] / limit.gbs[i]);
    const auto [least, most] = std::minmax_element(series.gbs.begin(), series.gbs.end());
    const auto [lower, upper] = std::minmax_element(shares.begin(), shares.end());
    std::printf("%-8s %-14s %6.2f GB/s (%.2f to %.2f)  share %4.0f %% (%.0f to %.0f)  CPU s/GB %.2f + %.2f\n",
                shape.name.c_str(), series.name.c_str(), Median(series.gbs), *least, *most, 100 * Median(shares),
                100 * *lower, 100 * *upper, Median(series.cpu_prefill), Median(series.cpu_decode));
    std::fflush(stdout);
    json_ += std::string(json_.empty() ? "" : ", ") + "{\"shape\": \"" + shape.name + "\", \"name\": \"" + series.name +
             "\", \"share\": " + std::to_string(Median(shares)) + ", \"gbs\": [";
    for (size_t i = 0; i < series.gbs.size(); ++i) json_ += (i ? ", " : "") + std::to_string(series.gbs[i]);
    json_ += "]}";
  }

  const int socket_;
  const Flags& flags_;
  Pipelines& pipelines_;
  const std::vector<Shape> shapes_ = Shapes();
  std::chrono::steady_clock::time_point last_;
  std::string json_;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Bandwidth of KV transfers as a share of what two copying processes reach");
  app.add_option("--rounds", flags.rounds, "Rounds that count")->capture_default_str();
  app.add_option("--json", flags.json, "Write the figures to this file");
  app.add_option("--shape", flags.shape, "Only this one: default or 8b");
  app.add_option("--channel", flags.channel, "Only this one: shm or tcp");
  app.add_option("--window", flags.receiver.window, "Pieces in flight")->capture_default_str();
  app.add_option("--lease-window", flags.receiver.lease_window, "Of them of one lease")->capture_default_str();
  app.add_option("--piece-bytes", flags.receiver.max_piece_bytes, "Most bytes of a piece")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const kvtransfer::ChannelLimits limits{flags.receiver.window, size_t(flags.receiver.max_piece_bytes)};
  Pipelines pipelines{ShmPipeline(limits), TcpPipeline(limits)};
  int sockets[2];
  PCHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
  const pid_t child = fork();
  PCHECK(child >= 0);
  if (child == 0) {
    close(sockets[0]);
    DecodeProcess(sockets[1], flags, pipelines);
  }
  close(sockets[1]);
  PrefillProcess(sockets[0], flags, pipelines).Run();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::Main(argc, argv);
}
