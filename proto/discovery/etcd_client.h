// Calls to etcd 3.4 over gRPC, each of which blocks: one thread uses a client, any thread may Cancel it.
//
// A call goes to one member; after a failure its user takes the next. Calls but Watch end after `call_timeout`. Plain
// connections and no user: who may reach etcd is its operator's business.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/discovery/key_listing.h"
#include "proto/etcd.grpc.pb.h"

namespace sluice::discovery {

class EtcdClient {
 public:
  struct Lease {
    int64_t id = 0;
    absl::Duration ttl;
  };
  struct Value {
    std::string value;
    int64_t lease = 0;
  };
  struct Listed {
    KeyListing::Keys keys;
    int64_t revision = 0;
  };

  explicit EtcdClient(std::vector<std::string> endpoints, absl::Duration call_timeout = absl::Seconds(2));

  absl::StatusOr<Lease> Grant(absl::Duration ttl);
  absl::Status Put(const std::string& key, const std::string& value, int64_t lease);
  absl::StatusOr<absl::Duration> KeepAlive(int64_t lease);  // the time left; 0: no such lease
  absl::StatusOr<std::optional<Value>> Get(const std::string& key);
  absl::StatusOr<Listed> List(const std::string& prefix);
  absl::Status Compact(int64_t revision);
  absl::Status Revoke(int64_t lease, absl::Duration timeout);  // also after Cancel

  // Tells every message from `revision` on until `on_news` says false (OK) or the stream ends (an error).
  absl::Status Watch(const std::string& prefix, int64_t revision, const std::function<bool(const WatchNews&)>& on_news);

  void NextEndpoint();  // over a new connection, also where there is only one
  const std::string& endpoint() const { return endpoints_[endpoint_]; }

  // What runs ends at once with CANCELLED, and so does what is asked later. Any thread.
  void Cancel();

 private:
  class Call;
  std::shared_ptr<grpc::Channel> channel();

  const std::vector<std::string> endpoints_;
  const absl::Duration call_timeout_;
  size_t endpoint_ = 0;
  std::shared_ptr<grpc::Channel> channel_;  // to endpoint_; null: not yet
  absl::Mutex mutex_;
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::discovery
