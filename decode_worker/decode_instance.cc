#include "decode_worker/decode_instance.h"

#include <algorithm>
#include <utility>

#include "worker/kv_channels.h"

namespace sluice::decode_worker {
namespace {

using kvtransfer::DecodeEndpoint;
using kvtransfer::Receiver;

DecodeEndpoint::Options Complete(DecodeEndpoint::Options options, const worker::RoleEnvironment& environment) {
  options.incarnation = environment.info.incarnation();
  options.fingerprint = environment.info.fingerprint();
  options.key = environment.key;
  options.host_id = environment.info.host_id();
  options.host = environment.options.host;
  options.kv = environment.kv;
  // A piece is at least one block of one layer.
  options.receiver.max_piece_bytes =
      std::max(options.receiver.max_piece_bytes, int64_t(environment.kv.layout.block_bytes()));
  return options;
}

}  // namespace

DecodeInstance::DecodeInstance(const worker::RoleEnvironment& environment, DecodeEndpoint::Options timing)
    : role_(environment.kv.layout, environment.engine, environment.requests, *this),
      endpoint_(Complete(std::move(timing), environment),
                [&role = role_, &loop = environment.loop](const Receiver::End& end) {
                  loop.PostTask([&role, end](absl::Time posted) { role.OnKvEnd(end, posted); });
                },
                [&board = environment.board](std::vector<v1::KvFlow> flows) { board.SetFlows(std::move(flows)); }) {}

void DecodeInstance::Expect(uint64_t lease_id, uint64_t prefill_incarnation, v1::RequestKey key,
                            std::vector<int32_t> blocks, int first_block) {
  endpoint_.Expect(lease_id, prefill_incarnation, std::move(key), std::move(blocks), first_block);
}

void DecodeInstance::Forget(uint64_t lease_id, absl::Status why) {
  endpoint_.Forget(lease_id, std::move(why));
}

absl::StatusOr<std::unique_ptr<worker::RoleInstance>> MakeDecodeInstance(const worker::RoleEnvironment& environment) {
  auto channels = worker::KvChannelsOf(environment.options, environment.kv);
  if (!channels.ok()) return channels.status();
  DecodeEndpoint::Options options;
  options.channels = *std::move(channels);
  return std::make_unique<DecodeInstance>(environment, std::move(options));
}

}  // namespace sluice::decode_worker
