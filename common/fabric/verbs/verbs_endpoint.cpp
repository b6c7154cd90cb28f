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

int64_t NowNs() { return RealClock().NowNs(); }

}  // namespace

VerbsEndpoint::VerbsEndpoint(std::shared_ptr<VerbsClient> client, uint32_t packet_bytes,
                             uint16_t compute_server, uint32_t incarnation)
    : client_(std::move(client)),
      mailbox_(std::make_shared<VerbsMailbox>()),
      packet_bytes_(packet_bytes),
      compute_server_(compute_server),
      incarnation_(incarnation) {}

absl::StatusOr<std::unique_ptr<Endpoint>> VerbsEndpoint::Open(std::shared_ptr<VerbsClient> client,
                                                              uint32_t packet_bytes,
                                                              uint16_t compute_server,
                                                              uint32_t incarnation) {
  std::unique_ptr<VerbsEndpoint> endpoint(
      new VerbsEndpoint(std::move(client), packet_bytes, compute_server, incarnation));
  PANDO_RETURN_IF_ERROR(endpoint->Init());
  PANDO_RETURN_IF_ERROR(endpoint->AwaitQueuePairs());
  return endpoint;
}

absl::Status VerbsEndpoint::Init() {
  PANDO_RETURN_IF_ERROR(mailbox_->Init());
  client_->Attach(mailbox_);
  const VerbsDevice& device = client_->device();
  const auto servers = static_cast<uint32_t>(client_->links().size());
  // A power of two: numbers of work requests wrap around at 2^32 (chain_queue.h).
  depth_ = std::bit_floor(std::min({client_->options().work_requests, device.work_requests_max(),
                                    device.completions_max() / servers}));
  if (depth_ < Chain::kMaxVerbs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("RDMA device ", device.name(), " has no room for ", servers, " servers"));
  }
  channel_.reset(ibv_create_comp_channel(device.context()));
  if (channel_ == nullptr ||
      fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "RDMA device ", device.name(), ": no completion channel: ", std::strerror(errno)));
  }
  completions_.reset(ibv_create_cq(device.context(), static_cast<int>(servers * depth_), nullptr,
                                   channel_.get(), 0));
  if (completions_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("RDMA device ", device.name(),
                                                     ": no completion queue of ", servers * depth_,
                                                     ": ", std::strerror(errno)));
  }
  const uint32_t result_bytes = depth_ * static_cast<uint32_t>(sizeof(uint64_t));
  PANDO_ASSIGN_OR_RETURN(const LocalBuffer results, AllocateBuffer(servers * result_bytes));
  for (uint16_t i = 0; i < servers; ++i) {
    Target target;
    target.link = client_->links()[i].get();
    target.queue = std::make_unique<ChainQueue>(
        i, target.link->memory, depth_, results.Slice(i * result_bytes, result_bytes), &counters_);
    targets_.push_back(std::move(target));
  }
  return absl::OkStatus();
}

absl::Status VerbsEndpoint::AwaitQueuePairs() {
  const int64_t deadline_ns = NowNs() + client_->options().connect_timeout_ms * kMillisecondNs;
  for (;;) {
    CheckTargets();
    TakeReplies();
    const Target* waits = nullptr;
    for (const Target& target : targets_) {
      if (target.state == State::kRefused) return target.refusal;
      if (target.state == State::kClosed || target.state == State::kOpening) waits = &target;
    }
    // A server that is gone has no queue pair; chains to it will say so.
    if (waits == nullptr) return absl::OkStatus();
    if (NowNs() >= deadline_ns) {
      return absl::UnavailableError(absl::StrCat(
          "server ", waits->link->location.id, " gives no queue pair: ",
          waits->refusal.ok() ? "is it stuck or stopped?" : waits->refusal.ToString()));
    }
    Sleep(NextDueNs(deadline_ns));
  }
}

VerbsEndpoint::~VerbsEndpoint() {
  PANDO_CHECK_EQ(in_flight(), 0u) << "an endpoint is destroyed with chains or calls in flight";
  client_->Detach(mailbox_);
  CloseUnwanted(mailbox_->Close());
  for (size_t link = 0; link < targets_.size(); ++link) {
    Target& target = targets_[link];
    if (target.state == State::kOpening) client_->Forget(target.sequence);
    target.queue->TakeAll();
    if (target.handle != 0) client_->CloseHandle(static_cast<int>(link), target.handle);
  }
}

void VerbsEndpoint::CloseUnwanted(const std::vector<VerbsMailbox::Reply>& replies) {
  for (const VerbsMailbox::Reply& reply : replies) {
    for (size_t link = 0; link < targets_.size(); ++link) {
      const Target& target = targets_[link];
      if (target.state != State::kOpening || target.sequence != reply.sequence) continue;
      const auto opened = ParseVerbsOpenReply(reply.body);
      if (reply.status.ok() && opened.ok()) {
        client_->CloseHandle(static_cast<int>(link), opened->handle);
      }
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
    case State::kClosed:
    case State::kOpening:
      break;
  }
  return MarkRecoverable(
      BrokenChainError(target.link->location, chain, 0,
                       "the queue pair broke; the server has not confirmed yet that nothing of it "
                       "is in flight any more"));
}

void VerbsEndpoint::DoPost(Chain* chain) {
  chain->MarkPosted(NowNs());
  ++chains_;
  const int link = client_->LinkIndex(chain->server());
  if (link == VerbsClient::kNoLink) [[unlikely]] {
    return Complete(chain, UnknownServerError(*chain));
  }
  Target& target = targets_[link];
  if (target.state != State::kConnected || target.link->gone.load(std::memory_order_acquire))
      [[unlikely]] {
    CheckTargets();
    TakeReplies();
    absl::Status why_not = WhyNot(target, *chain);
    if (!why_not.ok()) return Complete(chain, std::move(why_not));
  }
  absl::Status refused;
  uint32_t verbs = 0;
  for (const Verb& verb : chain->verbs()) {
    const VerbsMemory& server = target.link->memory;
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
    return Complete(chain, std::move(refused));
  const ServerId server = chain->server();  // it may be done, and gone, when Pump() returns
  target.queue->Push(chain, verbs, std::move(refused));
  Pump(&target);
  const uint64_t break_every = client_->options().break_every;
  if (break_every != 0 && counters_.doorbells % break_every == 0) [[unlikely]] {
    BreakQueuePair(server);
  }
}

void VerbsEndpoint::Pump(Target* target) {
  const absl::Status posted = target->queue->Pump();
  if (!posted.ok()) Break(target, State::kClosed, 0, std::string(posted.message()));
}

void VerbsEndpoint::Complete(Chain* chain, absl::Status status) {
  --chains_;
  chain->Complete(std::move(status), NowNs());
}

void VerbsEndpoint::Fetch() {
  std::array<ibv_wc, kFetchAtOnce> batch;
  int count;
  do {
    count = ibv_poll_cq(completions_.get(), kFetchAtOnce, batch.data());
    if (count > 0) ready_.insert(ready_.end(), batch.begin(), batch.begin() + count);
  } while (count == kFetchAtOnce);
}

void VerbsEndpoint::Handle(const ibv_wc& completion) {
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
    // Room for those that wait first: the callee may post.
    Pump(&target);
    Complete(done->chain, std::move(done->refused));
  }
}

size_t VerbsEndpoint::Poll() {
  const size_t before = in_flight();
  CheckTargets();
  if (chains_ > 0) Fetch();
  size_t done = 0;
  // A callee may post and so come back here by way of a failing doorbell: handled ones are taken
  // out first.
  std::vector<ibv_wc> batch;
  batch.swap(ready_);
  for (const ibv_wc& completion : batch) Handle(completion);
  done += batch.size();
  if (ready_.empty()) {
    batch.clear();
    ready_.swap(batch);  // keeps its memory
  }
  if (!calls_.empty() || !mailbox_->empty()) {
    TakeReplies();
    done += calls_.Finish(NowNs());
  }
  if ((++polls_ & (kPollsPerStallCheck - 1)) == 0) CheckStalls();
  // What was failed by CheckTargets() counts, too.
  return done + (in_flight() < before ? 1 : 0);
}

// --- Calls.

void VerbsEndpoint::DoCall(PendingCall* call) { calls_.Start(call); }

absl::StatusOr<uint32_t> VerbsEndpoint::SendRequest(ServerId server, std::string_view request) {
  const int link = client_->LinkIndex(server);
  if (link == VerbsClient::kNoLink) return UnknownServerError(server, "call");
  auto sequence = client_->Send(link, VerbsFrameType::kCall, request, mailbox_);
  if (!sequence.ok()) return Annotate(sequence.status(), "call");
  return sequence;
}

void VerbsEndpoint::TakeReplies() {
  for (VerbsMailbox::Reply& reply : mailbox_->TakeAll()) {
    const auto target = std::find_if(targets_.begin(), targets_.end(), [&](const Target& t) {
      return t.state == State::kOpening && t.sequence == reply.sequence;
    });
    if (target != targets_.end()) {
      OnOpenReply(&*target, &reply);
      continue;
    }
    calls_.Answer(reply.sequence, std::move(reply.status), reply.type == VerbsFrameType::kCallReply,
                  std::move(reply.body));
  }
}

// --- Waiting.

int64_t VerbsEndpoint::NextDueNs(int64_t until_ns) const {
  if (!calls_.empty()) until_ns = calls_.NextDueNs(until_ns, NowNs());
  for (const Target& target : targets_) {
    if (target.state == State::kClosed) until_ns = std::min(until_ns, target.retry_ns);
    if (target.queue->oldest_ns() != 0) {
      until_ns = std::min(until_ns, target.queue->oldest_ns() + kStallNs);
    }
  }
  return until_ns;
}

void VerbsEndpoint::Wait(int64_t until_ns) {
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
    ibv_req_notify_cq(completions_.get(), 0);
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
  for (Target& target : targets_) {
    const int64_t oldest_ns = target.queue->oldest_ns();
    if (oldest_ns != 0 && NowNs() - oldest_ns >= kStallNs) {
      Break(&target, State::kClosed, 0, "the NIC does not say what became of the oldest chain");
    }
  }
}

void VerbsEndpoint::Sleep(int64_t until_ns) {
  mailbox_->sleeper().Sleep(until_ns, chains_ > 0 ? channel_->fd : -1);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (chains_ > 0 && ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    ibv_ack_cq_events(queue, 1);
  }
}

const Clock& VerbsEndpoint::clock() const { return RealClock(); }

uint64_t VerbsEndpoint::random_seed() { return SystemRandom(); }

}  // namespace pando
