#include "proto/discovery/key_watcher.h"

#include <set>
#include <utility>

#include "glog/logging.h"

namespace sluice::discovery {

KeyWatcher::KeyWatcher(const RegistryAddress& registry, std::string prefix, OnAddresses on_addresses, RetryPace retry)
    : prefix_(std::move(prefix)), on_addresses_(std::move(on_addresses)), etcd_(registry.endpoints), machine_(retry) {}

KeyWatcher::~KeyWatcher() {
  Stop();
}

void KeyWatcher::Start() {
  thread_ = std::thread([this] { Run(); });
}

void KeyWatcher::Stop() {
  if (!thread_.joinable()) return;
  stop_.Stop();
  etcd_.Cancel();
  thread_.join();
}

void KeyWatcher::Run() {
  while (!stop_.stopped()) {
    const KeyListing::Step step = machine_.Next(Now());
    if (step.act == KeyListing::Act::kWait) {
      stop_.WaitUntil(step.until);
      continue;
    }
    const absl::Status status = step.act == KeyListing::Act::kList ? List() : Watch(step.revision);
    if (status.ok() || stop_.stopped()) continue;
    machine_.OnFailed(Spread(), Now());
    Log(status);
    etcd_.NextEndpoint();
  }
}

absl::Status KeyWatcher::List() {
  auto listed = etcd_.List(prefix_);
  if (!listed.ok()) return listed.status();
  machine_.OnListed(std::move(listed->keys), listed->revision);
  TellChange();
  return absl::OkStatus();
}

// OK where the machine itself ended it: it has said what comes next.
absl::Status KeyWatcher::Watch(int64_t revision) {
  return etcd_.Watch(prefix_, revision, [this](const WatchNews& news) {
    const bool goes_on = machine_.OnWatched(news, Spread(), Now());
    TellChange();
    Log(absl::UnavailableError("it ended the watch"));
    return goes_on;
  });
}

void KeyWatcher::TellChange() {
  if (!machine_.TakeChanged()) return;
  std::set<std::string> addresses;
  for (const auto& [key, value] : machine_.keys()) {
    if (IsHostAndPort(value)) {
      addresses.insert(value);
    } else {
      LOG(WARNING) << "etcd " << etcd_.endpoint() << ": what stands under " << key << " is no HOST:PORT";
    }
  }
  on_addresses_({addresses.begin(), addresses.end()});
}

void KeyWatcher::Log(const absl::Status& failure) {
  const KeyListing::News news = machine_.TakeNews();
  if (news == KeyListing::News::kFollows) {
    LOG(INFO) << "etcd " << etcd_.endpoint() << ": following " << prefix_ << ", " << machine_.keys().size()
              << " routers";
  } else if (news == KeyListing::News::kFails) {
    LOG(WARNING) << "etcd " << etcd_.endpoint() << " does not answer as it should (" << failure.message()
                 << "); going on with the " << machine_.keys().size() << " routers known from there, and trying again";
  }
}

}  // namespace sluice::discovery
