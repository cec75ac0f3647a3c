#include "kvtransfer/link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

// What a process that is stopped looks like from outside: the system accepts connections for it, and nobody answers.
class MutePeer {
 public:
  MutePeer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof own;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&own), length), 0);
    EXPECT_EQ(listen(socket_, 4), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length), 0);
    address = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
  }
  ~MutePeer() { close(socket_); }

  std::string address;

 private:
  const int socket_;
};

// A prefill worker ends its links when it stops, and waits for their ends.
TEST(Link, AMutePeerDoesNotKeepALinkFromEnding) {
  const MutePeer peer;
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel(peer.address, grpc::InsecureChannelCredentials());
  absl::Notification ended;
  const std::shared_ptr<SenderLink> link =
      OpenLink(channel, {[](const v1::ReceiverMessage&) {}, [&ended](const absl::Status&) { ended.Notify(); }});
  v1::SenderMessage hello;
  hello.mutable_hello()->set_host_id("h");
  link->Send(hello);
  link->Send(hello);
  EXPECT_FALSE(ended.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  link->Close(absl::OkStatus());
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(2)));
  ended.WaitForNotification();
}

}  // namespace
}  // namespace sluice::kvtransfer
