#include "worker/registration.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "worker/announce_stream.h"
#include "worker/listener.h"
#include "worker/monotonic_clock.h"

namespace sluice::worker {
namespace {

constexpr absl::Duration kDefaultHeartbeat = absl::Seconds(1);
constexpr absl::Duration kShortestHeartbeat = absl::Milliseconds(10);

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& router) {
  grpc::ChannelArguments arguments;
  // The pauses between tries are ours; gRPC's must not stretch them.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(router, grpc::InsecureChannelCredentials(), arguments);
}

absl::Duration HeartbeatOf(const v1::AnnounceReply& reply) {
  if (reply.heartbeat_ms() <= 0) return kDefaultHeartbeat;
  return std::max(kShortestHeartbeat, absl::Milliseconds(reply.heartbeat_ms()));
}

}  // namespace

class Registration::Waker {
 public:
  void Wake() {
    absl::MutexLock lock(&mutex_);
    woken_ = true;
  }

  void Report() {
    absl::MutexLock lock(&mutex_);
    report_due_ = woken_ = true;
  }

  void SetRouters(std::vector<std::string> routers) {
    absl::MutexLock lock(&mutex_);
    named_ = std::move(routers);
    woken_ = true;
  }

  // Where it changed since the last call.
  std::optional<std::vector<std::string>> TakeRouters() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(named_, std::nullopt);
  }

  bool TakeReportDue() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(report_due_, false);
  }

  void Leave(absl::Time until) {
    absl::MutexLock lock(&mutex_);
    if (!leaving_) leave_until_ = until;
    leaving_ = true;
    woken_ = true;
  }

  void WaitUntil(absl::Time until) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&woken_), until - MonotonicNow());
    woken_ = false;
  }

  bool leaving() {
    absl::MutexLock lock(&mutex_);
    return leaving_;
  }

  absl::Time leave_until() {
    absl::MutexLock lock(&mutex_);
    return leave_until_;
  }

 private:
  absl::Mutex mutex_;
  std::optional<std::vector<std::string>> named_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool report_due_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time leave_until_ ABSL_GUARDED_BY(mutex_);
};

struct Registration::Link {
  explicit Link(const std::string& to) : router(to), stub(v1::Registry::NewStub(ConnectTo(to))) {}

  std::string router;
  bool wanted = true;  // a fixed one, or named by the registry
  std::unique_ptr<v1::Registry::Stub> stub;
  std::unique_ptr<AnnounceStream> stream;  // null between tries
  int failures = 0;                        // tries in a row that were never answered
  absl::Time next_try = absl::InfinitePast();
  absl::Time next_heartbeat = absl::InfinitePast();
  bool was_announced = false;  // this try
  bool drained = false;        // this try
  uint64_t peer_lists = 0;     // taken, of this try
  std::vector<v1::DecodePeer> peers;
  absl::BitGen random;
};

Registration::Registration(RegistrationOptions options, ReportBoard& board)
    : options_(std::move(options)), board_(board), waker_(std::make_shared<Waker>()) {}

Registration::~Registration() {
  Stop(absl::ZeroDuration());
}

void Registration::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Registration::SetRouters(std::vector<std::string> routers) {
  waker_->SetRouters(std::move(routers));
}

void Registration::ReportSoon() {
  waker_->Report();
}

void Registration::BeginLeave(absl::Duration timeout) {
  waker_->Leave(MonotonicNow() + timeout);
}

void Registration::Stop(absl::Duration timeout) {
  BeginLeave(timeout);
  if (thread_.joinable()) thread_.join();
}

void Registration::Run() {
  UpdateLinks({});
  while (!waker_->leaving()) {
    if (const auto named = waker_->TakeRouters()) UpdateLinks(*named);
    if (waker_->TakeReportDue()) {
      for (Link& link : links_) link.next_heartbeat = absl::InfinitePast();
    }
    links_.remove_if([this](Link& link) { return IsOver(link); });
    absl::Time next = absl::InfiniteFuture();
    for (Link& link : links_) next = std::min(next, Advance(link, MonotonicNow()));
    CollectPeers();
    waker_->WaitUntil(next);
  }
  LeaveAll();
}

void Registration::UpdateLinks(const std::vector<std::string>& named) {
  std::set<std::string> wanted(options_.routers.begin(), options_.routers.end());
  wanted.insert(named.begin(), named.end());
  for (Link& link : links_) link.wanted = wanted.erase(link.router) > 0;
  for (const std::string& router : wanted) links_.emplace_back(router);
}

bool Registration::IsOver(Link& link) {
  if (link.wanted) return false;
  if (link.stream != nullptr) {
    const AnnounceStream::State state = link.stream->state();
    if (!state.ended && !state.announced) link.stream->Abort();  // then it wakes us
    if (!state.ended) return false;
  }
  LOG(INFO) << "router " << link.router << " is gone";
  return true;
}

void Registration::CollectPeers() {
  // Where no router is left, the last word of those that were there holds.
  if (links_.empty()) return;
  std::map<uint64_t, std::string> peers;
  for (const Link& link : links_) {
    for (const v1::DecodePeer& peer : link.peers) {
      peers[peer.incarnation()] = absl::StrCat(HostInAddress(peer.control().host()), ":", peer.control().port());
    }
  }
  if (peers == peers_) return;
  peers_ = peers;
  if (options_.on_peers) options_.on_peers(std::move(peers));
}

absl::Time Registration::Advance(Link& link, absl::Time now) {
  if (link.stream != nullptr && link.stream->state().ended) RetireTry(link, now);
  if (link.stream == nullptr) {
    if (now < link.next_try) return link.next_try;
    StartTry(link);
  }
  const AnnounceStream::State state = link.stream->state();
  if (!state.announced || state.ended) return absl::InfiniteFuture();  // the stream wakes us
  if (!link.was_announced) {
    link.was_announced = true;
    link.failures = 0;
    link.next_heartbeat = now;
    LOG(INFO) << "announced to router " << link.router << " (incarnation " << state.last_reply.router_incarnation()
              << ")";
  }
  if (state.peer_lists != link.peer_lists) {
    link.peer_lists = state.peer_lists;
    link.peers = state.peers;
  }
  if (state.drain && !link.drained) {
    link.drained = true;
    if (options_.on_drain) options_.on_drain();
  }
  if (now >= link.next_heartbeat) {
    link.stream->Send(Heartbeat());
    link.next_heartbeat = now + HeartbeatOf(state.last_reply);
  }
  return link.next_heartbeat;
}

void Registration::StartTry(Link& link) {
  link.was_announced = link.drained = false;
  link.peer_lists = 0;
  link.stream = std::make_unique<AnnounceStream>(
      [waker = waker_] { waker->Wake(); },
      [key = options_.key, worker = options_.info.incarnation()](const v1::AnnounceReply& reply) {
        return key.Accepts(reply.auth(), "announce answer", {worker, reply.router_incarnation()});
      });
  v1::Announcement first = Heartbeat();
  *first.mutable_info() = options_.info;
  first.set_auth(options_.key.Proof("announce", {options_.info.incarnation()}));
  link.stream->Begin(*link.stub, std::move(first));
}

void Registration::RetireTry(Link& link, absl::Time now) {
  const grpc::Status status = link.stream->state().status;
  if (link.was_announced || link.failures == 0) {
    LOG(WARNING) << "router " << link.router << (link.was_announced ? " is lost" : " cannot be reached") << " ("
                 << status.error_message() << "); trying again";
  }
  link.stream.reset();
  const absl::Duration pause =
      std::min(options_.longest_retry, options_.first_retry * (1 << std::min(link.failures, 16)));
  ++link.failures;
  // Jitter: workers that lost the same router do not come back in one burst.
  link.next_try = now + pause * absl::Uniform(link.random, 0.5, 1.0);
}

void Registration::LeaveAll() {
  v1::Announcement last = Heartbeat();
  last.set_leaving(true);
  for (Link& link : links_) {
    if (link.stream != nullptr) link.stream->Leave(last);
  }
  auto any_open = [&] {
    return std::any_of(links_.begin(), links_.end(),
                       [](const Link& link) { return link.stream != nullptr && !link.stream->state().ended; });
  };
  const absl::Time until = waker_->leave_until();
  while (any_open() && MonotonicNow() < until) waker_->WaitUntil(until);
  for (Link& link : links_) {
    if (link.stream != nullptr) link.stream->Abort();
  }
  // An aborted call ends at once: it needs nobody else, but it does need gRPC's threads. Where these have no time for
  // it the process is better off with what is left of the call than with a thread that waits, or one that pulls it
  // away.
  const absl::Time aborted = MonotonicNow() + absl::Milliseconds(500);
  while (any_open() && MonotonicNow() < aborted) waker_->WaitUntil(aborted);
  for (Link& link : links_) {
    if (link.stream == nullptr || link.stream->state().ended) continue;
    LOG(WARNING) << "the call to router " << link.router << " does not end";
    static_cast<void>(link.stream.release());
    static_cast<void>(link.stub.release());
  }
}

v1::Announcement Registration::Heartbeat() const {
  v1::Announcement heartbeat;
  *heartbeat.mutable_report() = board_.Take();
  return heartbeat;
}

}  // namespace sluice::worker
