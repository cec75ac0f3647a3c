// The two endpoints of a pair as workers have them, each in a process of its own: gRPC link, channel, checksums.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "bench/kv_transfer/pools.h"
#include "grpcpp/server.h"
#include "kvtransfer/decode_endpoint.h"
#include "kvtransfer/prefill_endpoint.h"

namespace sluice::bench {

struct PairOptions {
  std::string channel;  // "shm" or "tcp"
  kvtransfer::Receiver::Options receiver;
};

class DecodeSide {
 public:
  DecodeSide(const Shape& shape, const Pool& pool, const PairOptions& options);
  ~DecodeSide();

  int port() const { return port_; }
  void Expect(uint64_t lease, std::vector<int32_t> blocks);
  // Of the lease, once it has ended.
  absl::Status AwaitEnd(uint64_t lease);

 private:
  absl::Mutex mutex_;
  std::map<uint64_t, absl::Status> ends_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<kvtransfer::DecodeEndpoint> endpoint_;
  std::unique_ptr<grpc::Server> server_;
};

class PrefillSide {
 public:
  // Returns when the pair is up.
  PrefillSide(const Shape& shape, const Pool& pool, const PairOptions& options, int decode_port);

  void Open(uint64_t lease, std::vector<int32_t> blocks);
  // Sends all blocks of the leases and waits for their ends; the first error of any.
  absl::Status Run(const std::vector<std::pair<uint64_t, int>>& blocks_by_lease);

 private:
  absl::Mutex mutex_;
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status bad_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<kvtransfer::PrefillEndpoint> endpoint_;
};

}  // namespace sluice::bench
