#include "bench/kv_transfer/endpoint_pair.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "grpcpp/server_builder.h"
#include "kvtransfer/fingerprint.h"

namespace sluice::bench {
namespace {

using kvtransfer::DecodeEndpoint;
using kvtransfer::PrefillEndpoint;
using kvtransfer::Receiver;
using kvtransfer::Sender;
using kvtransfer::TransferId;

constexpr uint64_t kDecode = 2, kPrefill = 1;  // incarnations
constexpr absl::Duration kPatience = absl::Seconds(60);

v1::Fingerprint PrintOf(const Shape& shape) {
  v1::Fingerprint print;
  print.set_protocol_version(kvtransfer::kTransferProtocolVersion);
  print.set_model_hash(shape.name);
  print.set_block_size(shape.layout.block_size);
  return print;
}

}  // namespace

DecodeSide::DecodeSide(const Shape& shape, const Pool& pool, const PairOptions& options) {
  DecodeEndpoint::Options o;
  o.incarnation = kDecode;
  o.fingerprint = PrintOf(shape);
  o.host_id = "host";
  o.channels = {options.channel};
  o.kv = pool.view();
  o.receiver = options.receiver;
  endpoint_ = std::make_unique<DecodeEndpoint>(std::move(o), [this](const Receiver::End& end) {
    absl::MutexLock lock(&mutex_);
    ends_[end.lease_id] = end.status;
  });
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&endpoint_->service());
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr);
}

DecodeSide::~DecodeSide() {
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
  server_->Wait();
}

void DecodeSide::Expect(uint64_t lease, std::vector<int32_t> blocks) {
  endpoint_->Expect(lease, kPrefill, v1::RequestKey(), std::move(blocks));
}

absl::Status DecodeSide::AwaitEnd(uint64_t lease) {
  absl::MutexLock lock(&mutex_);
  const auto ended = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ends_.contains(lease); };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), kPatience)) return absl::DeadlineExceededError("no end");
  return ends_.extract(lease).mapped();
}

PrefillSide::PrefillSide(const Shape& shape, const Pool& pool, const PairOptions& options, int decode_port) {
  PrefillEndpoint::Options o;
  o.incarnation = kPrefill;
  o.fingerprint = PrintOf(shape);
  o.host_id = "host";
  o.channels = {options.channel};
  o.kv = pool.view();
  PrefillEndpoint::Callbacks callbacks;
  callbacks.on_end = [this](TransferId, const Sender::End& end) {
    absl::MutexLock lock(&mutex_);
    --open_;
    bad_.Update(end.status);
  };
  callbacks.on_progress = [](TransferId, int64_t) {};
  callbacks.on_pair = [this](uint64_t, PrefillEndpoint::PairState state, const absl::Status&) {
    absl::MutexLock lock(&mutex_);
    up_ = state == PrefillEndpoint::PairState::kUp;
  };
  endpoint_ = std::make_unique<PrefillEndpoint>(std::move(o), std::move(callbacks));
  endpoint_->SetPeers({{kDecode, {absl::StrCat("127.0.0.1:", decode_port)}}});
  absl::MutexLock lock(&mutex_);
  CHECK(mutex_.AwaitWithTimeout(absl::Condition(&up_), kPatience)) << "the pair does not come up";
}

void PrefillSide::Open(uint64_t lease, std::vector<int32_t> blocks) {
  {
    absl::MutexLock lock(&mutex_);
    ++open_;
  }
  endpoint_->Open({kDecode, lease}, v1::RequestKey(), std::move(blocks));
}

absl::Status PrefillSide::Run(const std::vector<std::pair<uint64_t, int>>& blocks_by_lease) {
  for (const auto& [lease, blocks] : blocks_by_lease) {
    endpoint_->AddBlocks({kDecode, lease}, 0, blocks);
    endpoint_->Commit({kDecode, lease}, v1::Commit());
  }
  absl::MutexLock lock(&mutex_);
  const auto ended = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_ == 0; };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), kPatience)) return absl::DeadlineExceededError("no end");
  return bad_;
}

}  // namespace sluice::bench
