#include "tests/host_cuda/nccl/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace host_cuda::nccl {

void Link::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void Link::Send(Kind kind, std::string_view body, const Signature& signature, uint64_t number, int32_t sends,
                int32_t receives) {
  Message::Head head;
  head.kind = kind;
  head.sends = sends;
  head.receives = receives;
  head.number = number;
  head.body_bytes = body.size();
  head.signature = signature;
  out_.append(reinterpret_cast<const char*>(&head), sizeof head);
  out_.append(body);
}

void Link::Flush() {
  if (!open() || dead) return;
  while (wants_to_write()) {
    const ssize_t n = send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) {
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      dead = true;
      break;
    }
    sent_ += static_cast<size_t>(n);
  }
  if (!wants_to_write()) {
    out_.clear();
    sent_ = 0;
  }
}

bool Link::Pump(std::vector<Message>* came) {
  if (!open() || dead) return false;
  Flush();
  char chunk[65536];
  for (;;) {
    const ssize_t n = recv(socket_, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      in_.append(chunk, static_cast<size_t>(n));
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) dead = true;
    break;
  }
  size_t at = 0;
  while (in_.size() - at >= sizeof(Message::Head)) {
    Message message;
    std::memcpy(&message.head, in_.data() + at, sizeof message.head);
    if (in_.size() - at - sizeof message.head < message.head.body_bytes) break;
    message.body.assign(in_, at + sizeof message.head, message.head.body_bytes);
    at += sizeof message.head + message.head.body_bytes;
    came->push_back(std::move(message));
  }
  in_.erase(0, at);
  return !dead;
}

}  // namespace host_cuda::nccl
