#include "worker/announce_stream.h"

#include <utility>

namespace sluice::worker {

void AnnounceStream::Begin(v1::Registry::Stub& stub, v1::Announcement first) {
  stub.async()->Announce(&context_, this);
  AddHold();
  {
    absl::MutexLock lock(&mutex_);
    next_ = std::move(first);
  }
  StartRead(&incoming_);
  StartCall();
  Continue();
}

void AnnounceStream::Send(v1::Announcement announcement) {
  {
    absl::MutexLock lock(&mutex_);
    if (leaving_ || closed_) return;
    if (next_ && next_->has_info()) return;  // never lose the introduction
    next_ = std::move(announcement);
  }
  Continue();
}

void AnnounceStream::Leave(v1::Announcement last) {
  {
    absl::MutexLock lock(&mutex_);
    if (leaving_ || closed_) return;
    next_ = std::move(last);
    leaving_ = true;
  }
  Continue();
}

AnnounceStream::State AnnounceStream::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

// At most one of: the next write, the half-close, letting go of the call.
void AnnounceStream::Continue() {
  enum { kNothing, kWrite, kHalfClose, kRelease } what = kNothing;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_) return;
    if (!closed_ && next_) {
      outgoing_ = *std::move(next_);
      next_.reset();
      writing_ = true;
      what = kWrite;
    } else if (!closed_ && leaving_) {
      closed_ = released_ = true;
      what = kHalfClose;
    } else if (closed_ && !released_) {
      released_ = true;
      what = kRelease;
    }
  }
  if (what == kWrite) StartWrite(&outgoing_);
  if (what == kHalfClose) StartWritesDone();
  if (what == kHalfClose || what == kRelease) RemoveHold();
}

void AnnounceStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) closed_ = true;
  }
  Continue();
}

void AnnounceStream::OnReadDone(bool ok) {
  if (ok && !belongs_(incoming_)) {
    {
      absl::MutexLock lock(&mutex_);
      stranger_ = true;
    }
    context_.TryCancel();
    ok = false;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (ok) {
      state_.announced = true;
      state_.drain = state_.drain || incoming_.drain();
      if (incoming_.peers_valid()) {
        ++state_.peer_lists;
        state_.peers.assign(incoming_.decode_peers().begin(), incoming_.decode_peers().end());
      }
      state_.last_reply = std::move(incoming_);
      incoming_.Clear();
    } else {
      closed_ = true;
    }
  }
  if (ok) {
    StartRead(&incoming_);
    on_change_();
  } else {
    Continue();
  }
}

void AnnounceStream::OnDone(const grpc::Status& status) {
  const std::function<void()> on_change = std::move(on_change_);
  {
    absl::MutexLock lock(&mutex_);
    state_.ended = true;
    state_.status = stranger_ ? grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                             "it does not have this cluster's key; give all the same --cluster-key")
                              : status;
  }
  on_change();  // its owner may have destroyed this by now
}

}  // namespace sluice::worker
