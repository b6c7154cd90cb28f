#include "common/fabric/verbs/verbs_endpoint.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/system_random.h"
#include "common/fabric/recoverable.h"
#include "common/fabric/verb_check.h"
#include "common/fabric/verbs/completion_error.h"

namespace pando {
namespace {

// Completions are looked for so long, yielding the processor in between, before the thread sleeps.
constexpr int64_t kSpinNs = 50'000;
constexpr int kFetchAtOnce = 32;
// Completions are overdue after so long: a NIC gives a peer up within four seconds
// (queue_pair.cpp).
constexpr int64_t kStallNs = 8 * kSecondNs;
constexpr uint32_t kPollsPerStallCheck = 1024;

}  // namespace

VerbsEndpoint::VerbsEndpoint(std::shared_ptr<VerbsClient> client, uint32_t packet_bytes,
                             uint16_t compute_server, uint32_t incarnation)
    : client_(std::move(client)),
      mailbox_(std::make_shared<Mailbox>()),
      packet_bytes_(packet_bytes),
      compute_server_(compute_server),
      incarnation_(incarnation),
      first_wait_ns_(client_->options().connect_timeout_ms * kMillisecondNs) {}

absl::StatusOr<std::unique_ptr<Endpoint>> VerbsEndpoint::Open(std::shared_ptr<VerbsClient> client,
                                                              uint32_t packet_bytes,
                                                              uint16_t compute_server,
                                                              uint32_t incarnation) {
  std::unique_ptr<VerbsEndpoint> endpoint(
      new VerbsEndpoint(std::move(client), packet_bytes, compute_server, incarnation));
  PANDO_RETURN_IF_ERROR(endpoint->Init());
  return endpoint;
}

absl::Status VerbsEndpoint::Init() {
  PANDO_RETURN_IF_ERROR(mailbox_->Init());
  VerbsClient::Attached found = client_->Attach(mailbox_);
  const VerbsDevice& device = client_->device();
  const auto servers = static_cast<uint32_t>(found.links.size());
  alone_doorbells_ = client_->options().alone_doorbells.value_or(!device.is_software());
  // A power of two: numbers of work requests wrap around at 2^32 (chain_queue.h).
  depth_ = std::bit_floor(std::min({client_->options().work_requests, device.work_requests_max(),
                                    device.completions_max() / servers}));
  if (depth_ < Chain::kMaxVerbs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("RDMA device ", device.name(), " has no room for ", servers, " servers"));
  }
  PANDO_RETURN_IF_ERROR(InitChannel());
  PANDO_RETURN_IF_ERROR(AddRooms(servers));
  domain_ = ThreadDomain::Create(device, client_->thread_domain_calls());
  list_ = std::make_unique<ChainQueue::List>();
  for (std::shared_ptr<VerbsLink>& link : found.links) AddTarget(std::move(link));
  adopted_ = found.added;
  CheckGone();
  return absl::OkStatus();
}

absl::Status VerbsEndpoint::InitChannel() {
  const VerbsDevice& device = client_->device();
  channel_.reset(ibv_create_comp_channel(device.context()));
  if (channel_ != nullptr &&
      fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "RDMA device ", device.name(), ": no completion channel: ", std::strerror(errno)));
}

VerbsEndpoint::~VerbsEndpoint() {
  PANDO_CHECK_EQ(in_flight(), 0u) << "an endpoint is destroyed with chains or calls in flight";
  client_->Detach(mailbox_);
  for (Target& target : targets_) {
    if (target.connecting.joinable()) target.connecting.join();
  }
  CloseUnwanted(mailbox_->Close());
  for (Target& target : targets_) {
    if (target.state == State::kOpening) client_->Forget(target.sequence);
    target.queue->TakeAll();
    if (target.handle != 0) client_->CloseHandle(target.link.get(), target.handle);
  }
}

void VerbsEndpoint::CloseUnwanted(const std::vector<Reply>& replies) {
  for (const Reply& reply : replies) {
    for (const Target& target : targets_) {
      if (target.state != State::kOpening || target.sequence != reply.sequence) continue;
      const auto opened = ParseVerbsOpenReply(reply.body);
      if (reply.status.ok() && opened.ok()) client_->CloseHandle(target.link.get(), opened->handle);
    }
  }
}

absl::StatusOr<LocalBuffer> VerbsEndpoint::AllocateBuffer(size_t bytes) {
  if (bytes == 0 || bytes > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  }
  PANDO_ASSIGN_OR_RETURN(RegisteredMemory memory,
                         RegisteredMemory::Create(client_->device(), bytes));
  buffers_.push_back(std::move(memory));
  const RegisteredMemory& kept = buffers_.back();
  return LocalBuffer{kept.data(), static_cast<uint32_t>(bytes), kept.local_key()};
}

// --- Chains.

absl::Status VerbsEndpoint::WhyNot(const Target& target, const Chain& chain) const {
  switch (target.state) {
    case State::kConnected:
      return absl::OkStatus();
    case State::kGone:
      return BrokenChainError(target.link->location, chain, 0, "the memory server is gone");
    case State::kRefused:
      return BrokenChainError(target.link->location, chain, 0, target.refusal.ToString());
    case State::kUnused:
    case State::kClosed:
    case State::kOpening:
      break;
  }
  if (target.connects_first()) return absl::OkStatus();
  return MarkRecoverable(
      BrokenChainError(target.link->location, chain, 0,
                       "the queue pair broke; the server has not confirmed yet that nothing of it "
                       "is in flight any more"));
}

void VerbsEndpoint::DoPost(Chain* chain) {
  const int64_t now_ns = NowNs();
  chain->MarkPosted(now_ns);
  ++chains_;
  Target* target = TargetOf(chain->server());
  if (target == nullptr) [[unlikely]]
    return Complete(chain, UnknownServerError(*chain), now_ns);
  if (target->state != State::kConnected || target->link->gone.load(std::memory_order_acquire))
      [[unlikely]] {
    CheckTargets();
    TakeReplies();
    target = TargetOf(chain->server());  // a callee may have taken another life up
    absl::Status why_not = WhyNot(*target, *chain);
    if (!why_not.ok()) return Complete(chain, std::move(why_not), now_ns);
  }
  absl::Status refused;
  uint32_t verbs = 0;
  for (const Verb& verb : chain->verbs()) {
    const VerbsMemory& server = target->link->memory;
    const uint64_t space_bytes =
        verb.space == MemorySpace::kMain ? server.main_bytes : server.lock_bytes;
    const char* const reason = CheckVerb(verb, space_bytes, packet_bytes_);
    if (reason != nullptr) [[unlikely]] {
      refused = VerbError(chain->server(), verb, reason);
      break;
    }
    ++verbs;
  }
  if (verbs == 0) [[unlikely]]
    return Complete(chain, std::move(refused), now_ns);
  target->queue->Push(chain, verbs, std::move(refused));
  MarkBusy(target);
  if (target->state == State::kUnused) [[unlikely]]
    OpenQueuePair(target);
  if (overlap() && !target->queue->list_is_full()) {
    unrung_ = true;
    return;
  }
  Pump(target, now_ns);
}

void VerbsEndpoint::Pump(Target* target, int64_t now_ns) {
  const uint64_t before = counters_.doorbells;
  const absl::Status posted = target->queue->Pump(now_ns, alone_doorbells_ && chains_ == 1);
  if (!posted.ok()) [[unlikely]]
    return Break(target, State::kClosed, std::nullopt, std::string(posted.message()));
  const uint64_t break_every = client_->options().break_every;
  if (break_every != 0 && counters_.doorbells / break_every != before / break_every) [[unlikely]] {
    Break(target, State::kClosed, std::nullopt, "broken by a test");
  }
}

void VerbsEndpoint::PumpAll() {
  if (!unrung_) return;
  unrung_ = false;
  const int64_t now_ns = NowNs();
  ForEachBusy([&](Target& target) { Pump(&target, now_ns); });
}

void VerbsEndpoint::MarkBusy(Target* target) {
  if (target->busy) return;
  target->busy = true;
  busy_.push_back(target);
}

template <typename Visit>
void VerbsEndpoint::ForEachBusy(Visit visit) {
  // A callee may post and so append, also to what has been visited.
  for (size_t i = 0; i < busy_.size();) {
    Target& target = *busy_[i];
    if (target.queue->size() > 0) visit(target);
    if (target.queue->size() > 0) {
      ++i;
      continue;
    }
    target.busy = false;
    busy_[i] = busy_.back();
    busy_.pop_back();
  }
}

void VerbsEndpoint::Complete(Chain* chain, absl::Status status, int64_t now_ns) {
  --chains_;
  chain->Complete(std::move(status), now_ns);
}

void VerbsEndpoint::Fetch() {
  std::array<ibv_wc, kFetchAtOnce> batch;
  for (const CompletionQueueHandle& completions : completions_) {
    int count;
    do {
      count = ibv_poll_cq(completions.get(), kFetchAtOnce, batch.data());
      if (count > 0) ready_.insert(ready_.end(), batch.begin(), batch.begin() + count);
    } while (count == kFetchAtOnce);
  }
}

void VerbsEndpoint::Handle(const ibv_wc& completion, int64_t now_ns) {
  const uint16_t index = ChainQueue::IndexOf(completion);
  if (index >= targets_.size()) return;
  Target& target = targets_[index];
  std::optional<ChainQueue::Failure> failure;
  std::optional<ChainQueue::Entry> done = target.queue->OnCompletion(completion, &failure);
  if (failure.has_value()) {
    ++counters_.failures;
    Break(&target, State::kClosed, failure->verb, DescribeCompletionStatus(failure->status));
  } else if (done.has_value()) {
    ++counters_.completions;
    // Those that wait for room are told together, when all that is ready has been handled.
    unrung_ = true;
    Complete(done->chain, std::move(done->refused), now_ns);
  }
}

size_t VerbsEndpoint::Poll() {
  const size_t before = in_flight();
  CheckTargets();
  PumpAll();
  if (chains_ > 0) Fetch();
  size_t done = 0;
  if (!ready_.empty()) {
    const int64_t now_ns = NowNs();
    // A callee may post and so come back here by way of a failing doorbell: handled ones are taken
    // out first.
    std::vector<ibv_wc> batch;
    batch.swap(ready_);
    for (const ibv_wc& completion : batch) Handle(completion, now_ns);
    done += batch.size();
    if (ready_.empty()) {
      batch.clear();
      ready_.swap(batch);  // keeps its memory
    }
    PumpAll();
  }
  if (!calls_.empty() || !mailbox_->empty()) {
    TakeReplies();
    done += calls_.Finish(RealClock().NowNs());
  }
  if ((++polls_ & (kPollsPerStallCheck - 1)) == 0) CheckStalls();
  // What was failed by CheckTargets() counts, too.
  return done + (in_flight() < before ? 1 : 0);
}

// --- Calls.

void VerbsEndpoint::DoCall(PendingCall* call) { calls_.Start(call); }

absl::StatusOr<uint32_t> VerbsEndpoint::SendRequest(ServerId server, std::string_view request) {
  const Target* const target = TargetOf(server);
  if (target == nullptr) return UnknownServerError(server, "call");
  auto sequence = client_->Send(target->link.get(), VerbsFrameType::kCall, request, mailbox_);
  if (!sequence.ok()) return Annotate(sequence.status(), "call");
  return sequence;
}

void VerbsEndpoint::TakeReplies() {
  for (Reply& reply : mailbox_->TakeAll()) {
    const auto waits = std::find_if(unsettled_.begin(), unsettled_.end(), [&](const Target* t) {
      return t->state == State::kOpening && t->sequence == reply.sequence;
    });
    if (waits != unsettled_.end()) {
      OnOpenReply(*waits, &reply);
      continue;
    }
    calls_.Answer(reply.sequence, std::move(reply.status), reply.kind == ReplyKind::kCall,
                  std::move(reply.body));
  }
}

// --- Waiting.

int64_t VerbsEndpoint::NextDueNs(int64_t until_ns) {
  if (!calls_.empty()) until_ns = calls_.NextDueNs(until_ns, RealClock().NowNs());
  for (const Target* target : unsettled_) {
    if (target->state == State::kClosed) until_ns = std::min(until_ns, target->retry_ns);
    if (target->connects_first()) until_ns = target->queue->NextLateNs(until_ns, first_wait_ns_);
  }
  ForEachBusy([&](const Target& target) {
    const int64_t oldest_ns = target.queue->oldest_ns();
    if (oldest_ns != 0) until_ns = std::min(until_ns, oldest_ns + kStallNs);
  });
  return until_ns;
}

void VerbsEndpoint::Wait(int64_t until_ns) {
  PumpAll();
  until_ns = NextDueNs(until_ns);
  if (!ready_.empty() || !mailbox_->empty()) return;
  if (chains_ > 0) {
    int64_t now_ns = NowNs();
    const int64_t spin_until_ns = std::min(until_ns, now_ns + kSpinNs);
    for (; now_ns < spin_until_ns; now_ns = NowNs()) {
      Fetch();
      if (!ready_.empty() || !mailbox_->empty() || mailbox_->sleeper().TakeWake()) return;
      sched_yield();
    }
    if (now_ns >= until_ns) return;
    // Asks for an event at the next completion; one that came meanwhile causes none.
    for (const CompletionQueueHandle& queue : completions_) ibv_req_notify_cq(queue.get(), 0);
    Fetch();
    if (!ready_.empty()) return;
  }
  Sleep(until_ns);
  CheckStalls();
}

void VerbsEndpoint::CheckStalls() {
  // The process itself may have been stopped: what came meanwhile has not been looked at.
  Fetch();
  if (!ready_.empty()) return;
  const int64_t now_ns = NowNs();
  ForEachBusy([&](Target& target) {
    const int64_t oldest_ns = target.queue->oldest_ns();
    if (oldest_ns != 0 && now_ns - oldest_ns >= kStallNs) {
      Break(&target, State::kClosed, std::nullopt,
            "the NIC does not say what became of the oldest chain");
    }
  });
}

void VerbsEndpoint::Sleep(int64_t until_ns) {
  mailbox_->sleeper().Sleep(until_ns, chains_ > 0 ? channel_->fd : -1);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (chains_ > 0 && ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    ibv_ack_cq_events(queue, 1);
  }
}

const Clock& VerbsEndpoint::clock() const { return clock_; }

uint64_t VerbsEndpoint::random_seed() { return SystemRandom(); }

}  // namespace pando
