// Keeper and watcher against a real etcd: one process on free ports, with its data in a folder of the test's own.
// Skipped where there is no etcd (Debian's etcd-server; deploy/setup installs it).
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/discovery/etcd_client.h"
#include "proto/discovery/key_keeper.h"
#include "proto/discovery/key_watcher.h"
#include "proto/discovery/registry_address.h"

namespace sluice::discovery {
namespace {

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

class EtcdProcess {
 public:
  EtcdProcess() : client_port_(FreePort()), peer_port_(FreePort()) {
    char folder[] = "/tmp/sluice-etcd-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~EtcdProcess() {
    Kill();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    const std::string client = absl::StrCat("http://127.0.0.1:", client_port_);
    const std::string peer = absl::StrCat("http://127.0.0.1:", peer_port_);
    std::vector<std::string> words = {"setpriv",
                                      "--pdeathsig",
                                      "KILL",
                                      "etcd",
                                      "--data-dir",
                                      folder_ + "/data",
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      peer,
                                      "--initial-advertise-peer-urls",
                                      peer,
                                      "--initial-cluster",
                                      "default=" + peer,
                                      "--unsafe-no-fsync"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, (folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    ASSERT_EQ(posix_spawnp(&pid_, arguments[0], &files, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void Empty() { std::filesystem::remove_all(folder_ + "/data"); }
  void Signal(int signal) { kill(pid_, signal); }

  std::string endpoint() const { return absl::StrCat("127.0.0.1:", client_port_); }

 private:
  const int client_port_, peer_port_;
  std::string folder_;
  pid_t pid_ = 0;
};

bool HaveEtcd() {
  return system("command -v etcd >/dev/null 2>&1") == 0;
}

class EtcdTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HaveEtcd()) GTEST_SKIP() << "there is no etcd here; Debian's package etcd-server has it";
    etcd_.Start();
    registry_ = *ParseRegistry(absl::StrCat("etcd://", etcd_.endpoint(), "/test"));
  }

  // What the watcher told last.
  KeyWatcher::OnAddresses Into() {
    return [this](std::vector<std::string> addresses) {
      absl::MutexLock lock(&mutex_);
      addresses_ = std::move(addresses);
      ++told_;
    };
  }
  bool Sees(const std::vector<std::string>& expected) {
    absl::MutexLock lock(&mutex_);
    const auto same = [&] { return addresses_ == expected; };
    return mutex_.AwaitWithTimeout(absl::Condition(&same), absl::Seconds(30));
  }
  int told() {
    absl::MutexLock lock(&mutex_);
    return told_;
  }
  std::unique_ptr<KeyKeeper> Keep(uint64_t incarnation, const std::string& address) {
    LeasedKeyOptions options;
    options.ttl = absl::Seconds(2);
    auto keeper = std::make_unique<KeyKeeper>(registry_, RouterKey(registry_, incarnation), address, options);
    keeper->Start();
    return keeper;
  }

  EtcdProcess etcd_;
  RegistryAddress registry_;
  absl::Mutex mutex_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  int told_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_F(EtcdTest, RoutersComeAndGo) {
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  auto one = Keep(1, "127.0.0.1:11");
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  auto two = Keep(2, "127.0.0.1:12");
  ASSERT_TRUE(Sees({"127.0.0.1:11", "127.0.0.1:12"}));
  auto same = Keep(3, "127.0.0.1:12");  // the next life of the second one
  absl::SleepFor(absl::Milliseconds(300));
  two->Stop();
  ASSERT_TRUE(Sees({"127.0.0.1:11", "127.0.0.1:12"}));
  one->Stop();
  EXPECT_TRUE(Sees({"127.0.0.1:12"}));
  same->Stop();
  EXPECT_TRUE(Sees({}));
}

TEST_F(EtcdTest, StandsLongerThanItsLease) {
  auto keeper = Keep(1, "127.0.0.1:11");
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  const int told_once = told();
  absl::SleepFor(absl::Seconds(7));
  EXPECT_EQ(told(), told_once);
}

TEST_F(EtcdTest, WhoDiesIsGoneWithItsLease) {
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  EtcdClient client({etcd_.endpoint()});
  absl::StatusOr<EtcdClient::Lease> lease = client.Grant(absl::Seconds(2));
  for (int i = 0; i < 300 && !lease.ok(); ++i, absl::SleepFor(absl::Milliseconds(100))) {
    client.NextEndpoint();
    lease = client.Grant(absl::Seconds(2));
  }
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_TRUE(client.Put(RouterKey(registry_, 1), "127.0.0.1:11", lease->id).ok());
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  EXPECT_TRUE(Sees({}));
}

TEST_F(EtcdTest, AwayWithItsDataAndBackNothingChanges) {
  auto keeper = Keep(1, "127.0.0.1:11");
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  etcd_.Kill();
  absl::SleepFor(absl::Seconds(3));  // longer than the lease
  EXPECT_TRUE(Sees({"127.0.0.1:11"}));
  etcd_.Start();
  auto second = Keep(2, "127.0.0.1:12");
  EXPECT_TRUE(Sees({"127.0.0.1:11", "127.0.0.1:12"}));
}

TEST_F(EtcdTest, BackEmptyEverybodyStandsThereAgain) {
  auto keeper = Keep(1, "127.0.0.1:11");
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  EtcdClient client({etcd_.endpoint()});
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.Put("/other", "x", 0).ok());  // old revisions are high
  etcd_.Kill();
  etcd_.Empty();
  etcd_.Start();
  auto second = Keep(2, "127.0.0.1:12");
  EXPECT_TRUE(Sees({"127.0.0.1:11", "127.0.0.1:12"}));
}

TEST_F(EtcdTest, AKeyThatSomebodyDeletesComesBack) {
  auto keeper = Keep(1, "127.0.0.1:11");
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  const auto channel = grpc::CreateChannel(etcd_.endpoint(), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  etcdserverpb::DeleteRangeRequest request;
  request.set_key(RouterKey(registry_, 1));
  etcdserverpb::DeleteRangeResponse response;
  ASSERT_TRUE(etcdserverpb::KV::NewStub(channel)->DeleteRange(&context, request, &response).ok());
  EXPECT_EQ(response.deleted(), 1);
  ASSERT_TRUE(Sees({}));
  EXPECT_TRUE(Sees({"127.0.0.1:11"}));
}

TEST_F(EtcdTest, AWatchOfACompactedRevisionSaysSo) {
  EtcdClient client({etcd_.endpoint()});
  absl::Status put = client.Put("/test/a", "0", 0);
  for (int i = 0; i < 300 && !put.ok(); ++i, absl::SleepFor(absl::Milliseconds(100))) {
    client.NextEndpoint();
    put = client.Put("/test/a", "0", 0);
  }
  ASSERT_TRUE(put.ok()) << put;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client.Put("/test/a", absl::StrCat(i), 0).ok());
  const auto listed = client.List("/test/");
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->keys, (KeyListing::Keys{{"/test/a", "4"}}));
  ASSERT_TRUE(client.Compact(listed->revision).ok());
  WatchNews last;
  ASSERT_TRUE(client.Watch("/test/", 2, [&](const WatchNews& news) { return !(last = news).canceled; }).ok());
  EXPECT_EQ(last.compact_revision, listed->revision);
  // And in order, what came since.
  ASSERT_TRUE(client.Put("/test/b", "5", 0).ok());
  ASSERT_TRUE(client.Put("/tesu", "not of the prefix", 0).ok());
  ASSERT_TRUE(client
                  .Watch("/test/", listed->revision + 1,
                         [&](const WatchNews& news) {
                           last = news;
                           return news.changes.empty();
                         })
                  .ok());
  ASSERT_EQ(last.changes.size(), 1u);
  EXPECT_EQ(last.changes[0].value, "5");
}

TEST_F(EtcdTest, TheNextMemberIsAskedWhereOneIsAway) {
  registry_.endpoints = {"127.0.0.1:1", etcd_.endpoint()};
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  auto keeper = Keep(1, "127.0.0.1:11");
  EXPECT_TRUE(Sees({"127.0.0.1:11"}));
}

TEST_F(EtcdTest, StopsWhateverEtcdDoes) {
  auto keeper = Keep(1, "127.0.0.1:11");
  KeyWatcher watcher(registry_, registry_.routers(), Into());
  watcher.Start();
  ASSERT_TRUE(Sees({"127.0.0.1:11"}));
  etcd_.Signal(SIGSTOP);
  absl::SleepFor(absl::Seconds(1));  // a keep-alive hangs
  // The watch has no deadline: were it not cancelled this would never end.
  watcher.Stop();
  keeper->Stop();
}

}  // namespace
}  // namespace sluice::discovery
