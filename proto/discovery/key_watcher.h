// Tells which routers stand in etcd, now and whenever that changes: key_listing.h on a thread of its own, over
// etcd_client.h.
//
// While etcd is away, which is told once in the log, nothing changes.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/random/random.h"
#include "proto/discovery/etcd_client.h"
#include "proto/discovery/key_listing.h"
#include "proto/discovery/registry_address.h"
#include "proto/discovery/stop_flag.h"

namespace sluice::discovery {

class KeyWatcher {
 public:
  // Each address once, in order; on the watcher's thread.
  using OnAddresses = std::function<void(std::vector<std::string>)>;

  KeyWatcher(const RegistryAddress& registry, std::string prefix, OnAddresses on_addresses, RetryPace retry = {});
  ~KeyWatcher();  // stops

  void Start();
  void Stop();  // idempotent

 private:
  void Run();
  absl::Status List();
  absl::Status Watch(int64_t revision);
  void TellChange();
  void Log(const absl::Status& failure);
  double Spread() { return absl::Uniform(random_, 0.0, 1.0); }

  const std::string prefix_;
  const OnAddresses on_addresses_;
  EtcdClient etcd_;
  KeyListing machine_;
  absl::BitGen random_;
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace sluice::discovery
