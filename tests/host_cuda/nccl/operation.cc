#include "tests/host_cuda/nccl/operation.h"

#include <cstring>
#include <set>

#include "tests/host_cuda/nccl/handles.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::nccl {
namespace {

using Clock = Communicator::Clock;

std::string TransferText(const Transfer& transfer) {
  std::string text = Text(transfer.signature);
  if (transfer.signature.call == Call::kSendRecv) {
    text = (transfer.send ? "ncclSend" : "ncclRecv") + text.substr(std::strlen("ncclSend/ncclRecv"));
  }
  return text + (transfer.send ? " to rank " : " from rank ") + std::to_string(transfer.peer);
}

class Operation {
 public:
  Operation(std::shared_ptr<Communicator> communicator, Signature signature, Plan plan)
      : comm_(std::move(communicator)), signature_(signature), plan_(std::move(plan)), states_(plan_.transfers.size()) {
    std::map<int, std::pair<int, int>> peers;
    for (const Transfer& t : plan_.transfers) ++(t.send ? peers[t.peer].first : peers[t.peer].second);
    index_ = comm_->Announce(signature_, peers);
  }

  bool Step() {
    std::lock_guard<std::mutex> lock(comm_->mutex);
    if (comm_->aborted) return true;
    const bool broken = comm_->state != ncclSuccess && comm_->state != ncclInProgress;
    if (broken || comm_->finished + 1 != index_ || Stalled()) return false;
    if (!begun_) Begin();
    CopyToSelf();
    if (!Advance()) {
      ReportLongWait();
      return false;
    }
    if (plan_.finish) plan_.finish();
    ++comm_->finished;
    comm_->changed.notify_all();
    return true;
  }

 private:
  enum class State { kNew, kAnnounced, kDone };

  // On purpose. A stall by plan has no end but an abort; an error is the communicator's.
  bool Stalled() {
    if (!asked_) {
      asked_ = true;
      const auto fails = FailsOnPurpose("operation", Text(signature_));
      stalled_ = fails.has_value();
      if (fails && *fails != "stall") comm_->Fail(ResultNamed(*fails), comm_->Name() + ": on purpose, in " + What());
    }
    if (stalled_) return true;
    const auto stall = comm_->settings.stalls.find({comm_->me.rank, index_});
    if (stall == comm_->settings.stalls.end()) return false;
    if (stalled_since_ == Clock::time_point()) stalled_since_ = Clock::now();
    return Clock::now() - stalled_since_ < stall->second;
  }

  void Begin() {
    begun_ = true;
    begun_at_ = Clock::now();
    std::set<int> peers;
    for (const Transfer& t : plan_.transfers) {
      if (t.peer != comm_->me.rank) peers.insert(t.peer);
    }
    const std::string doing = What();
    for (int peer : peers) comm_->links[static_cast<size_t>(peer)].Send(Kind::kBegun, doing);
    comm_->Wake();
    for (const auto& [p, bytes] : plan_.touches) {
      const std::string wrong = CheckAccess(p, bytes);
      if (!wrong.empty()) DeviceFault(cudaErrorIllegalAddress, Text(signature_) + " uses what it must not: " + wrong);
    }
    if (plan_.start) plan_.start();
  }

  std::string What() const {
    const std::string place = "its operation " + std::to_string(index_) + ": ";
    if (signature_.call != Call::kSendRecv || plan_.transfers.empty()) return place + Text(signature_);
    const size_t more = plan_.transfers.size() - 1;
    return place + TransferText(plan_.transfers[0]) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
  }

  void CopyToSelf() {
    for (size_t i = 0; i < states_.size(); ++i) {
      const Transfer& from = plan_.transfers[i];
      if (!from.send || from.peer != comm_->me.rank || states_[i] == State::kDone) continue;
      for (size_t j = 0; j < states_.size(); ++j) {
        const Transfer& to = plan_.transfers[j];
        if (to.send || to.peer != comm_->me.rank || states_[j] == State::kDone) continue;
        if (!(to.signature == from.signature)) {
          comm_->Wrong(comm_->Name() + " sends itself " + Text(from.signature) + " and receives " + Text(to.signature),
                       -1);
          return;
        }
        std::memmove(to.buffer, from.buffer, from.bytes);
        states_[i] = states_[j] = State::kDone;
        break;
      }
    }
  }

  // true: all are done. In one direction to one peer the transfers go one after the other.
  bool Advance() {
    bool all = true;
    std::set<std::pair<int, bool>> busy;
    for (size_t i = 0; i < states_.size(); ++i) {
      const Transfer& t = plan_.transfers[i];
      if (states_[i] == State::kDone) continue;
      const bool free = t.peer != comm_->me.rank && busy.insert({t.peer, t.send}).second;
      if (!free || !(t.send ? AdvanceSend(t, &states_[i]) : AdvanceReceive(t, &states_[i]))) {
        all = false;
        continue;
      }
      states_[i] = State::kDone;
      busy.erase({t.peer, t.send});
    }
    return all;
  }

  bool AdvanceSend(const Transfer& t, State*) {
    Link& link = comm_->links[static_cast<size_t>(t.peer)];
    if (link.ready.empty()) {
      if (link.said_bye || link.dead) Gone(t);
      return false;
    }
    const Signature wanted = link.ready.front().head.signature;
    link.ready.pop_front();
    if (!(wanted == t.signature)) {
      comm_->Wrong("rank " + std::to_string(comm_->me.rank) + " sends " + Text(t.signature) + ", rank " +
                       std::to_string(t.peer) + " receives " + Text(wanted) + ", on communicator " +
                       comm_->me.id.substr(0, 8),
                   t.peer);
      return false;
    }
    link.Send(Kind::kData, {t.buffer, t.bytes}, t.signature);
    comm_->Wake();
    return true;
  }

  bool AdvanceReceive(const Transfer& t, State* state) {
    Link& link = comm_->links[static_cast<size_t>(t.peer)];
    if (*state == State::kNew) {
      link.Send(Kind::kReady, {}, t.signature);
      comm_->Wake();
      *state = State::kAnnounced;
    }
    if (link.data.empty()) {
      if (link.said_bye || link.dead) Gone(t);
      return false;
    }
    std::memcpy(t.buffer, link.data.front().body.data(), t.bytes);
    link.data.pop_front();
    return true;
  }

  void Gone(const Transfer& t) {
    comm_->Fail(ncclRemoteError, comm_->Name() + ": " + TransferText(t) + ", which has left the communicator");
  }

  void ReportLongWait() {
    if (reported_ || Clock::now() - begun_at_ < comm_->settings.timeout) return;
    reported_ = true;
    std::string text =
        comm_->Name() + " has waited " + std::to_string(comm_->settings.timeout.count()) + " ms in " + What();
    for (size_t i = 0; i < states_.size(); ++i) {
      const Transfer& t = plan_.transfers[i];
      if (states_[i] == State::kDone || t.peer == comm_->me.rank) continue;
      const Link& link = comm_->links[static_cast<size_t>(t.peer)];
      text +=
          "; rank " + std::to_string(t.peer) + " is in " + (link.doing.empty() ? "none of its operations" : link.doing);
      break;
    }
    comm_->Remark(text);
  }

  std::shared_ptr<Communicator> comm_;
  Signature signature_;
  Plan plan_;
  std::vector<State> states_;
  uint64_t index_ = 0;
  bool begun_ = false, reported_ = false, asked_ = false, stalled_ = false;
  Clock::time_point begun_at_, stalled_since_;
};

}  // namespace

DeviceWork MakeCaptured(std::shared_ptr<Communicator> communicator, Signature signature, std::function<Plan()> plan) {
  DeviceWork work;
  work.name = Text(signature);
  work.step = [] { return true; };  // never run itself
  work.fresh = [=] { return MakeOperation(communicator, signature, plan); };
  return work;
}

DeviceWork MakeOperation(std::shared_ptr<Communicator> communicator, Signature signature, std::function<Plan()> plan) {
  auto operation = std::make_shared<Operation>(communicator, signature, plan());
  DeviceWork work;
  work.name = Text(signature);
  work.step = [operation] { return operation->Step(); };
  work.fresh = [=] { return MakeOperation(communicator, signature, plan); };
  return work;
}

}  // namespace host_cuda::nccl
