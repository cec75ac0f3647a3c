#include "proto/discovery/key_keeper.h"

#include <utility>

#include "glog/logging.h"

namespace sluice::discovery {
namespace {

constexpr absl::Duration kRevokeTimeout = absl::Milliseconds(300);

}  // namespace

KeyKeeper::KeyKeeper(const RegistryAddress& registry, std::string key, std::string value, LeasedKeyOptions options)
    : key_(std::move(key)),
      value_(std::move(value)),
      options_(options),
      etcd_(registry.endpoints),
      machine_(std::move(options)) {}

KeyKeeper::~KeyKeeper() {
  Stop();
}

void KeyKeeper::Start() {
  thread_ = std::thread([this] { Run(); });
}

void KeyKeeper::Stop() {
  if (!thread_.joinable()) return;
  stop_.Stop();
  etcd_.Cancel();
  thread_.join();
  if (machine_.lease() == 0) return;
  if (const absl::Status revoked = etcd_.Revoke(machine_.lease(), kRevokeTimeout); !revoked.ok()) {
    LOG(WARNING) << "etcd " << etcd_.endpoint() << ": " << value_ << " stays there until its lease is over ("
                 << revoked.message() << ")";
  }
}

void KeyKeeper::Run() {
  while (!stop_.stopped()) {
    const LeasedKey::Step step = machine_.Next(Now());
    if (step.act == LeasedKey::Act::kWait) {
      stop_.WaitUntil(step.until);
    } else {
      Do(step.act);
    }
  }
}

void KeyKeeper::Do(LeasedKey::Act act) {
  absl::Status status;
  if (act == LeasedKey::Act::kGrant) {
    const auto lease = etcd_.Grant(options_.ttl);
    status = lease.status();
    if (lease.ok()) machine_.OnGranted(lease->id, lease->ttl);
  } else if (act == LeasedKey::Act::kPut) {
    status = etcd_.Put(key_, value_, machine_.lease());
    if (status.ok()) machine_.OnPut(Now());
  } else if (act == LeasedKey::Act::kKeepAlive) {
    const auto ttl = etcd_.KeepAlive(machine_.lease());
    status = ttl.status();
    if (ttl.ok()) machine_.OnKeptAlive(*ttl);
  } else {
    const auto found = etcd_.Get(key_);
    status = found.status();
    if (found.ok()) {
      const bool stands = found->has_value() && (*found)->value == value_ && (*found)->lease == machine_.lease();
      machine_.OnChecked(stands, Now());
    }
  }
  if (!status.ok() && stop_.stopped()) return;
  if (!status.ok()) machine_.OnFailed(status, absl::Uniform(random_, 0.0, 1.0), Now());
  Tell(status);
  if (!status.ok()) etcd_.NextEndpoint();
}

void KeyKeeper::Tell(const absl::Status& failure) {
  const LeasedKey::News news = machine_.TakeNews();
  if (news == LeasedKey::News::kStands) {
    LOG(INFO) << "in etcd " << etcd_.endpoint() << ": workers find this router there as " << value_;
  } else if (news == LeasedKey::News::kFails) {
    LOG(WARNING) << "etcd " << etcd_.endpoint() << " does not answer as it should (" << failure.message()
                 << "); going on without, and trying again";
  }
}

}  // namespace sluice::discovery
