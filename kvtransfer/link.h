// The control link of a pair as the endpoints see it: messages in both directions, in order, until it ends once.
//
// Two makers: OpenLink dials (prefill side), LinkService accepts (decode side). Threads: Send and Close from anywhere;
// the handlers are called on gRPC's threads and must only post. A handler is never called after on_end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "proto/transfer.grpc.pb.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

template <typename Out>
class Link {
 public:
  virtual ~Link() = default;
  // No-op once the link has ended.
  virtual void Send(Out message) = 0;
  // Ends the link; on_end follows within a moment, whatever the peer does. What was sent before still goes out on the
  // accepting side; the dialling side drops what the peer has not taken yet.
  virtual void Close(const absl::Status& why) = 0;
};

using SenderLink = Link<v1::SenderMessage>;      // held by the prefill side
using ReceiverLink = Link<v1::ReceiverMessage>;  // held by the decode side

template <typename In>
struct LinkHandler {
  std::function<void(In)> on_message;
  std::function<void(const absl::Status&)> on_end;
};

// Dials; an endpoint that does not answer ends the link with UNAVAILABLE. The link keeps itself alive until it ended.
// The caller keeps `channel` until on_end: its last reference must not go on a gRPC thread.
std::shared_ptr<SenderLink> OpenLink(const std::shared_ptr<grpc::Channel>& channel,
                                     LinkHandler<v1::ReceiverMessage> handler);

// Called for each incoming link, before its first message; returns the handler. The link keeps itself alive until it
// ended.
using LinkAcceptor = std::function<LinkHandler<v1::SenderMessage>(std::shared_ptr<ReceiverLink>)>;

class LinkService final : public v1::Transfer::CallbackService {
 public:
  explicit LinkService(LinkAcceptor accept) : accept_(std::move(accept)) {}
  grpc::ServerBidiReactor<v1::SenderMessage, v1::ReceiverMessage>* Link(grpc::CallbackServerContext* context) override;

 private:
  const LinkAcceptor accept_;
};

}  // namespace sluice::kvtransfer
