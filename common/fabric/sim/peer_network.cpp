#include "common/fabric/sim/peer_network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/sim/sim_peer_link.h"

namespace pando::sim {
namespace {

constexpr uint64_t kPeerSeed = 0x7065657273;
// As on verbs (verbs_peer_room.h).
constexpr uint32_t kTimedCredits = 16;

class SimPeerPort final : public PeerPort {
 public:
  SimPeerPort(PeerNetwork* network, uint32_t port, std::string address)
      : network_(network), port_(port), address_(std::move(address)) {}
  ~SimPeerPort() override { network_->ClosePort(port_); }

  const std::string& address() const override { return address_; }
  absl::StatusOr<std::shared_ptr<PeerLink>> Connect(const std::string& address,
                                                    PeerHandler* handler) override {
    return network_->Connect(port_, address, handler);
  }

 private:
  PeerNetwork* const network_;
  const uint32_t port_;
  const std::string address_;
};

}  // namespace

PeerNetwork::PeerNetwork(Core* core)
    : core_(core), random_(DeriveSeed(core->options.seed, kPeerSeed)) {}

int64_t PeerNetwork::Delay() {
  const SimOptions& options = core_->options;
  if (timed_ != nullptr) return static_cast<int64_t>(timed_->profile().calls.one_way_ns);
  const auto jitter = [this](int64_t limit_ns) {
    return static_cast<int64_t>(random_.Uniform(static_cast<uint64_t>(limit_ns) + 1));
  };
  int64_t delay_ns = options.delay_ns + jitter(options.jitter_ns);
  if (random_.Chance(options.long_delay_probability)) delay_ns += jitter(options.long_delay_ns);
  return delay_ns;
}

// --- Ports.

absl::StatusOr<std::unique_ptr<PeerPort>> PeerNetwork::OpenPort(uint32_t process,
                                                                const PeerOptions& options) {
  if (core_->processes[process]->killed) {
    return absl::UnavailableError("killed: this compute server is dead");
  }
  if (options.hello_timeout_ms <= 0 || options.links_max == 0) {
    return absl::InvalidArgumentError("hello_timeout_ms and links_max have to be above 0");
  }
  const auto id = static_cast<uint32_t>(ports_.size());
  std::string address;
  if (options.acceptor != nullptr) {
    address = options.address.empty() ? absl::StrCat("sim-", process, "-", id) : options.address;
    if (!addresses_.emplace(address, id).second) {
      return absl::AlreadyExistsError(absl::StrCat("another port listens at ", address));
    }
  }
  ports_.push_back(std::make_unique<Port>());
  ports_.back()->process = process;
  ports_.back()->options = options;
  ports_.back()->options.address = address;
  ++core_->processes[process]->peer_ports;
  return std::make_unique<SimPeerPort>(this, id, std::move(address));
}

void PeerNetwork::ClosePort(uint32_t id) {
  Port& port = *ports_[id];
  port.closed = true;
  addresses_.erase(port.options.address);
  --core_->processes[port.process]->peer_ports;
  for (uint32_t end = 0; end < ends_.size(); ++end) {
    if (at(end).port != id || at(end).state == State::kEnded) continue;
    CutWire(end);
    Tell(Other(end), OtherEndGone("it was closed there"));
    Finish(end, absl::CancelledError("the port was closed"));
  }
}

absl::StatusOr<std::shared_ptr<PeerLink>> PeerNetwork::Connect(uint32_t port_id,
                                                               const std::string& address,
                                                               PeerHandler* handler) {
  const Port& port = *ports_[port_id];
  const auto found = addresses_.find(address);
  if (port.closed || core_->processes[port.process]->killed || found == addresses_.end() ||
      core_->processes[ports_[found->second]->process]->killed) {
    return absl::UnavailableError(absl::StrCat("no compute server listens at '", address, "'"));
  }
  const Port& target = *ports_[found->second];
  const uint32_t credits =
      timed_ != nullptr
          ? kTimedCredits
          : 1 + static_cast<uint32_t>(random_.Uniform(core_->options.peer_messages_max));
  const uint32_t end = AddEnd(port.process, port_id, credits);
  const uint32_t acceptor = AddEnd(target.process, found->second, credits);
  PANDO_CHECK_EQ(acceptor, Other(end));
  at(end).handler = handler;
  at(end).link = std::make_shared<SimPeerLink>(this, end, PeerIdentity{});
  at(end).wants_writable = true;
  ++core_->stats.peer_links;
  core_->ScheduleAt(core_->NowNs() + port.options.hello_timeout_ms * kMillisecondNs,
                    EventKind::kPeerDeadline, end);
  const bool is_answered = !IsCut(target.process, port.process);
  if (IsCut(port.process, target.process) || !is_answered) ++core_->stats.peer_hellos_lost;
  if (IsCut(port.process, target.process)) {
    at(end).cut = at(acceptor).cut = true;  // the hello is lost
  } else {
    // The hello arrives, its answer does not: the acceptor has a link that never opens.
    at(acceptor).mute = !is_answered;
    Push(acceptor, {.kind = Entry::Kind::kHello}, core_->NowNs() + Delay());
  }
  return at(end).link;
}

uint32_t PeerNetwork::AddEnd(uint32_t process, uint32_t port, uint32_t credits) {
  ends_.push_back(std::make_unique<End>());
  End& end = *ends_.back();
  end.process = process;
  end.port = port;
  end.credits = end.credits_max = credits;
  return static_cast<uint32_t>(ends_.size() - 1);
}

// --- Messages.

void PeerNetwork::Push(uint32_t id, Entry entry, int64_t not_before_ns) {
  End& end = at(id);
  entry.due_ns = end.last_due_ns = std::max(not_before_ns, end.last_due_ns);
  end.incoming.push_back(std::move(entry));
  core_->ScheduleAt(end.last_due_ns, EventKind::kPeerDue, id);
}

PeerSend PeerNetwork::TrySend(uint32_t id, std::string_view message) {
  End& end = at(id);
  const Process& process = *core_->processes[end.process];
  if (process.killed || end.closing || end.state == State::kEnded) return PeerSend::kBroken;
  if (end.state == State::kConnecting || end.credits == 0) {
    end.wants_writable = true;
    return PeerSend::kFull;
  }
  --end.credits;
  ++core_->stats.peer_messages;
  if (timed_ != nullptr) core_->SpendCpu(timed_->PostNs(1));
  if (end.cut || end.mute) {
    ++core_->stats.peer_messages_lost;
    return PeerSend::kSent;
  }
  Post(Other(id), message);
  if (process.peer_break_probability > 0 &&
      core_->break_random.Chance(process.peer_break_probability)) {
    const auto within_ns = static_cast<uint64_t>(core_->options.break_within_ns);
    core_->Schedule(static_cast<int64_t>(core_->break_random.Uniform(within_ns + 1)),
                    EventKind::kPeerBreak, id);
  }
  return PeerSend::kSent;
}

void PeerNetwork::Post(uint32_t to, std::string_view message) {
  Entry entry;
  entry.bytes = message;
  if (timed_ == nullptr) return Push(to, std::move(entry), core_->NowNs() + Delay());
  const int64_t known_ns = timed_->PostMessage(at(Other(to)).process, message.size());
  at(to).incoming.push_back(std::move(entry));
  core_->ScheduleAt(known_ns, EventKind::kPeerPosted, to);
}

PeerNetwork::Entry* PeerNetwork::NextMessage(End* end, size_t* next) {
  while (*next < end->incoming.size()) {
    Entry& entry = end->incoming[(*next)++];
    if (entry.kind == Entry::Kind::kMessage) return &entry;
  }
  return nullptr;
}

void PeerNetwork::OnPosted(uint32_t id) {
  End& end = at(id);
  const Entry* const entry = end.cut ? nullptr : NextMessage(&end, &end.unposted);
  if (entry == nullptr) return;
  const size_t bytes = entry->bytes.size();
  const int64_t arrives_ns = timed_->SendMessage(at(Other(id)).process, end.process, bytes);
  core_->ScheduleAt(arrives_ns, EventKind::kPeerArrived, id);
}

void PeerNetwork::OnArrived(uint32_t id) {
  End& end = at(id);
  Entry* const entry = end.cut ? nullptr : NextMessage(&end, &end.unarrived);
  if (entry == nullptr) return;
  entry->due_ns = end.last_due_ns =
      std::max(end.last_due_ns, timed_->ReceiveMessage(end.process, entry->bytes.size()));
  core_->ScheduleAt(entry->due_ns, EventKind::kPeerDue, id);
}

uint32_t PeerNetwork::ProcessOf(uint32_t end) const { return ends_[end]->process; }

void PeerNetwork::OnDue(uint32_t id) {
  End& end = at(id);
  // What was to come by this event has been lost.
  if (end.incoming.empty() || end.incoming.front().due_ns > core_->now_ns) return;
  Port& port = *ports_[end.port];
  if (timed_ != nullptr && port.busy_until_ns > core_->now_ns) {
    return core_->ScheduleAt(port.busy_until_ns, EventKind::kPeerDue, id);
  }
  Entry entry = std::move(end.incoming.front());
  end.incoming.pop_front();
  end.unposted -= end.unposted > 0 ? 1 : 0;
  end.unarrived -= end.unarrived > 0 ? 1 : 0;
  if (timed_ == nullptr) return Take(id, std::move(entry));
  core_->in_runner = true;
  core_->SpendCpu(timed_->profile().cpu.completion_ns);
  Take(id, std::move(entry));
  port.busy_until_ns = core_->NowNs();
  core_->in_runner = false;
  core_->spent_cpu_ns = 0;
}

void PeerNetwork::Take(uint32_t id, Entry entry) {
  if (at(id).state == State::kEnded) return;
  switch (entry.kind) {
    case Entry::Kind::kHello:
      return Accept(id);
    case Entry::Kind::kOpened:
      return Open(id);
    case Entry::Kind::kMessage:
      return TakeMessage(id, entry.bytes);
    case Entry::Kind::kBroken:
      return Finish(id, entry.why);
  }
}

void PeerNetwork::Accept(uint32_t id) {
  End& end = at(id);
  Port& port = *ports_[end.port];
  if (port.links >= port.options.links_max) {
    CutWire(id);
    Tell(Other(id), absl::ResourceExhaustedError(
                        absl::StrCat("the compute server at ", port.options.address, " has ",
                                     port.links, " links, as many as it takes")));
    end.state = State::kEnded;
    return;
  }
  const End& dialler = at(Other(id));
  end.state = State::kOpen;
  ++port.links;
  end.link = std::make_shared<SimPeerLink>(this, id, ports_[dialler.port]->options.identity);
  if (!end.cut && !end.mute)
    Push(Other(id), {.kind = Entry::Kind::kOpened}, core_->NowNs() + Delay());
  const std::shared_ptr<SimPeerLink> link = end.link;
  end.handler = port.options.acceptor->OnAccepted(link);
  if (end.handler == nullptr) Close(id);
}

void PeerNetwork::Open(uint32_t id) {
  End& end = at(id);
  if (end.closing) return;
  end.state = State::kOpen;
  ++ports_[end.port]->links;
  end.link->set_other(ports_[at(Other(id)).port]->options.identity);
  MakeWritable(id);
}

void PeerNetwork::TakeMessage(uint32_t id, const std::string& bytes) {
  End& end = at(id);
  if (end.closing || end.handler == nullptr) return;
  core_->trace.MixBytes(id, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  ++end.taken;
  const std::shared_ptr<SimPeerLink> link = end.link;
  end.handler->OnMessage(link.get(), bytes);
  if (2 * end.taken < end.credits_max || end.cut || end.mute) return;
  core_->ScheduleAt(core_->NowNs() + Delay(), EventKind::kPeerCredit, Other(id),
                    static_cast<uint8_t>(std::exchange(end.taken, 0)));
}

void PeerNetwork::OnCredit(uint32_t id, uint32_t credits) {
  at(id).credits += credits;
  if (at(id).wants_writable && at(id).state == State::kOpen) MakeWritable(id);
}

void PeerNetwork::MakeWritable(uint32_t id) {
  End& end = at(id);
  end.wants_writable = false;
  if (end.closing || end.handler == nullptr) return;
  const std::shared_ptr<SimPeerLink> link = end.link;
  end.handler->OnWritable(link.get());
}

void PeerNetwork::OnDeadline(uint32_t id) {
  if (at(id).state != State::kConnecting) return;
  CutWire(id);
  Tell(Other(id), OtherEndGone("it was given up there"));
  TellNow(id, OtherEndGone("it does not answer: is it stuck or stopped?"));
}

}  // namespace pando::sim
