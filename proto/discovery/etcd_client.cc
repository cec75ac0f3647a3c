#include "proto/discovery/etcd_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"

namespace sluice::discovery {
namespace {

namespace pb = ::etcdserverpb;

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  // Every failure is answered with a new channel, whose first call waits for its connection: the pauses between tries
  // are ours. gRPC's own tries make no way while no call is waiting, unless the process has other gRPC threads.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // the longest that a connection takes
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A watch is silent for hours; a connection that leads nowhere is noticed all the same. etcd cuts off who pings more
  // often than every 5 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// The first key behind all that begin with `prefix`.
std::string EndOf(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');  // etcd's word for "up to the last"
  ++prefix.back();
  return prefix;
}

WatchNews NewsOf(const pb::WatchResponse& response) {
  WatchNews news;
  news.canceled = response.canceled();
  news.compact_revision = response.compact_revision();
  news.revision = response.header().revision();
  for (const pb::Event& event : response.events()) {
    news.changes.push_back({event.kv().key(), event.kv().value(), event.type() == pb::Event::DELETE});
  }
  return news;
}

}  // namespace

// One call's context while it runs, so that Cancel finds it.
class EtcdClient::Call {
 public:
  Call(EtcdClient& client, absl::Duration timeout) : client_(client) {
    if (timeout < absl::InfiniteDuration()) {
      context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    }
    absl::MutexLock lock(&client_.mutex_);
    client_.running_ = &context_;
    if (client_.cancelled_) context_.TryCancel();
  }
  ~Call() {
    absl::MutexLock lock(&client_.mutex_);
    client_.running_ = nullptr;
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  EtcdClient& client_;
  grpc::ClientContext context_;
};

EtcdClient::EtcdClient(std::vector<std::string> endpoints, absl::Duration call_timeout)
    : endpoints_(std::move(endpoints)), call_timeout_(call_timeout) {}

std::shared_ptr<grpc::Channel> EtcdClient::channel() {
  if (channel_ == nullptr) channel_ = ConnectTo(endpoint());
  return channel_;
}

void EtcdClient::NextEndpoint() {
  endpoint_ = (endpoint_ + 1) % endpoints_.size();
  channel_.reset();
}

void EtcdClient::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (running_ != nullptr) running_->TryCancel();
}

absl::StatusOr<EtcdClient::Lease> EtcdClient::Grant(absl::Duration ttl) {
  Call call(*this, call_timeout_);
  pb::LeaseGrantRequest request;
  request.set_ttl(std::max<int64_t>(1, absl::ToInt64Seconds(ttl)));
  pb::LeaseGrantResponse response;
  const grpc::Status status = pb::Lease::NewStub(channel())->LeaseGrant(call.context(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  if (!response.error().empty()) return absl::UnavailableError(response.error());
  return Lease{response.id(), absl::Seconds(response.ttl())};
}

absl::Status EtcdClient::Put(const std::string& key, const std::string& value, int64_t lease) {
  Call call(*this, call_timeout_);
  pb::PutRequest request;
  request.set_key(key);
  request.set_value(value);
  request.set_lease(lease);
  pb::PutResponse response;
  return FromGrpc(pb::KV::NewStub(channel())->Put(call.context(), request, &response));
}

absl::StatusOr<absl::Duration> EtcdClient::KeepAlive(int64_t lease) {
  Call call(*this, call_timeout_);
  const auto stub = pb::Lease::NewStub(channel());
  const auto stream = stub->LeaseKeepAlive(call.context());
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  stream->Write(request);
  stream->WritesDone();
  pb::LeaseKeepAliveResponse response, more;
  const bool answered = stream->Read(&response);
  while (answered && stream->Read(&more)) {
  }
  const grpc::Status status = stream->Finish();
  if (answered) return absl::Seconds(response.ttl());
  return status.ok() ? absl::UnavailableError("no answer to a keep-alive") : FromGrpc(status);
}

absl::StatusOr<std::optional<EtcdClient::Value>> EtcdClient::Get(const std::string& key) {
  Call call(*this, call_timeout_);
  pb::RangeRequest request;
  request.set_key(key);
  pb::RangeResponse response;
  const grpc::Status status = pb::KV::NewStub(channel())->Range(call.context(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  if (response.kvs().empty()) return std::nullopt;
  return Value{response.kvs(0).value(), response.kvs(0).lease()};
}

absl::StatusOr<EtcdClient::Listed> EtcdClient::List(const std::string& prefix) {
  Call call(*this, call_timeout_);
  pb::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(EndOf(prefix));
  pb::RangeResponse response;
  const grpc::Status status = pb::KV::NewStub(channel())->Range(call.context(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  Listed listed;
  listed.revision = response.header().revision();
  for (const pb::KeyValue& kv : response.kvs()) listed.keys[kv.key()] = kv.value();
  return listed;
}

absl::Status EtcdClient::Compact(int64_t revision) {
  Call call(*this, call_timeout_);
  pb::CompactionRequest request;
  request.set_revision(revision);
  pb::CompactionResponse response;
  return FromGrpc(pb::KV::NewStub(channel())->Compact(call.context(), request, &response));
}

absl::Status EtcdClient::Revoke(int64_t lease, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return FromGrpc(pb::Lease::NewStub(channel())->LeaseRevoke(&context, request, &response));
}

absl::Status EtcdClient::Watch(const std::string& prefix, int64_t revision,
                               const std::function<bool(const WatchNews&)>& on_news) {
  Call call(*this, absl::InfiniteDuration());
  // A member that has lost the others ends the watch instead of being silent.
  call.context()->AddMetadata("hasleader", "true");
  const auto stub = pb::Watch::NewStub(channel());
  const auto stream = stub->Watch(call.context());
  pb::WatchRequest request;
  request.mutable_create_request()->set_key(prefix);
  request.mutable_create_request()->set_range_end(EndOf(prefix));
  request.mutable_create_request()->set_start_revision(revision);
  stream->Write(request);
  pb::WatchResponse response;
  bool enough = false;
  while (!enough && stream->Read(&response)) enough = !on_news(NewsOf(response));
  if (enough) call.context()->TryCancel();
  const grpc::Status status = stream->Finish();
  if (enough) return absl::OkStatus();
  return status.ok() ? absl::UnavailableError("the watch has ended") : FromGrpc(status);
}

}  // namespace sluice::discovery
