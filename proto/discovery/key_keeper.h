// Keeps a router's address in etcd while it lives: leased_key.h on a thread of its own, over etcd_client.h.
//
// An etcd that is away is told once in the log and tried again without end; nobody else is disturbed.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/random/random.h"
#include "proto/discovery/etcd_client.h"
#include "proto/discovery/leased_key.h"
#include "proto/discovery/registry_address.h"
#include "proto/discovery/stop_flag.h"

namespace sluice::discovery {

class KeyKeeper {
 public:
  KeyKeeper(const RegistryAddress& registry, std::string key, std::string value, LeasedKeyOptions options = {});
  ~KeyKeeper();  // stops

  void Start();

  // Takes the key away again (at most 300 ms; else it goes with its lease). Idempotent.
  void Stop();

 private:
  void Run();
  void Do(LeasedKey::Act act);
  void Tell(const absl::Status& failure);

  const std::string key_, value_;
  const LeasedKeyOptions options_;
  EtcdClient etcd_;
  LeasedKey machine_;
  absl::BitGen random_;
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace sluice::discovery
