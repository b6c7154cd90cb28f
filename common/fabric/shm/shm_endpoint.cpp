#include "common/fabric/shm/shm_endpoint.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/system_random.h"
#include "common/fabric/shm/intent.h"
#include "common/fabric/shm/timed_copy.h"
#include "common/fabric/shm/word_copy.h"
#include "common/fabric/verb_check.h"

namespace pando {
namespace {

// RealClock() without the virtual call: a chain takes two readings.
int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

bool HasRead(const Chain& chain) {
  for (const Verb& verb : chain.verbs()) {
    if (verb.kind == VerbKind::kRead) return true;
  }
  return false;
}

bool OnlyWrites(const Chain& chain) {
  for (const Verb& verb : chain.verbs()) {
    if (verb.kind != VerbKind::kWrite) return false;
  }
  return true;
}

// Eight bytes from the pieces of a WRITE.
uint64_t GatherWord(const Verb& verb) {
  uint64_t word = 0;
  size_t filled = 0;
  for (int p = 0; p < verb.piece_count; ++p) {
    std::memcpy(reinterpret_cast<std::byte*>(&word) + filled, verb.pieces[p].data,
                verb.pieces[p].bytes);
    filled += verb.pieces[p].bytes;
  }
  return word;
}

}  // namespace

ShmEndpoint::ShmEndpoint(std::shared_ptr<ShmClient> client, uint16_t compute_server,
                         uint32_t incarnation)
    : client_(std::move(client)),
      mailbox_(std::make_shared<ShmMailbox>(compute_server, incarnation)) {
  TakeTime();
}

ShmEndpoint::Target ShmEndpoint::TargetOf(std::shared_ptr<ShmLink> link) {
  Target target;
  for (const MemorySpace space : {MemorySpace::kMain, MemorySpace::kLocks}) {
    target.space[static_cast<int>(space)] = link->region.space(space);
    target.space_bytes[static_cast<int>(space)] = link->region.space_bytes(space);
  }
  target.packet_bytes = link->region.geometry().packet_bytes;
  target.link = std::move(link);
  return target;
}

absl::StatusOr<std::unique_ptr<Endpoint>> ShmEndpoint::Open(std::shared_ptr<ShmClient> client,
                                                            uint16_t compute_server,
                                                            uint32_t incarnation) {
  std::unique_ptr<ShmEndpoint> endpoint(
      new ShmEndpoint(std::move(client), compute_server, incarnation));
  PANDO_RETURN_IF_ERROR(endpoint->mailbox_->Init());
  ShmClient::Attached found = endpoint->client_->Attach(endpoint->mailbox_);
  for (std::shared_ptr<ShmLink>& link : found.links) {
    endpoint->index_.Set(link->location.id, static_cast<int>(endpoint->targets_.size()));
    endpoint->targets_.push_back(TargetOf(std::move(link)));
  }
  PANDO_RETURN_IF_ERROR(endpoint->OpenSlots());
  return endpoint;
}

void ShmEndpoint::AdoptServers(uint32_t added) {
  for (ShmMailbox::AddedSlot& slot : mailbox_->TakeSlots(added)) {
    const ServerId server = slot.link->location.id;
    int index = index_.Of(server);
    // Posted before, and not run yet: it is none of this life's business.
    for (const auto* chains : {&running_, &deferred_}) {
      for (Chain* const chain : *chains) {
        if (chain == nullptr || chain->server() != server) continue;
        overtaken_.emplace(chain, index == ServerIndex::kNone ? UnknownServerError(*chain)
                                                              : targets_[index].link->GoneError());
      }
    }
    if (index == ServerIndex::kNone) {
      index = static_cast<int>(targets_.size());
      index_.Set(server, index);
      targets_.emplace_back();
    }
    Target& target = targets_[index];
    target = TargetOf(std::move(slot.link));
    target.slot = slot.slot;
    target.intent = target.link->region.intent(slot.slot);
  }
}

absl::Status ShmEndpoint::OpenSlots() {
  struct Request {
    int link;
    uint32_t sequence;
  };
  const std::string body = EncodeShmOpenSlot({mailbox_->compute_server, mailbox_->incarnation});
  const int64_t deadline_ns = NowNs() + client_->options().connect_timeout_ms * kMillisecondNs;
  absl::Status status;
  std::vector<Request> requests;
  for (int link = 0; link < static_cast<int>(targets_.size()); ++link) {
    const auto sequence =
        client_->Send(targets_[link].link.get(), ShmFrameType::kOpenSlot, body, mailbox_);
    // A server that is gone has no slots; chains to it will say so.
    if (!sequence.ok()) continue;
    if (*sequence == 0) status = absl::UnavailableError("the control connection is congested");
    requests.push_back({link, *sequence});
  }
  const auto take = [&](const Reply& reply) -> absl::Status {
    const auto request = std::find_if(requests.begin(), requests.end(), [&reply](const Request& r) {
      return r.sequence == reply.sequence;
    });
    if (request == requests.end()) return absl::OkStatus();
    Target& target = targets_[request->link];
    requests.erase(request);
    if (absl::IsUnavailable(reply.status)) return absl::OkStatus();
    const absl::StatusOr<uint32_t> slot =
        reply.kind == ReplyKind::kOpened ? ParseShmSlot(reply.body) : reply.status;
    if (!slot.ok() || *slot >= target.link->region.geometry().endpoints_max) {
      return Annotate(slot.ok() ? absl::DataLossError("impossible slot") : slot.status(),
                      absl::StrCat("server ", target.link->location.id));
    }
    target.slot = *slot;
    target.intent = target.link->region.intent(*slot);
    return absl::OkStatus();
  };
  while (status.ok() && !requests.empty()) {
    for (const Reply& reply : mailbox_->TakeAll()) status.Update(take(reply));
    if (requests.empty() || !status.ok()) break;
    if (NowNs() >= deadline_ns) {
      status = absl::UnavailableError(
          absl::StrCat("server ", targets_[requests.front().link].link->location.id,
                       " does not answer: is it stuck or stopped?"));
    }
    mailbox_->sleeper().Sleep(deadline_ns);
  }
  for (const Request& request : requests) client_->Forget(request.sequence);
  if (!requests.empty()) {
    // What has come all the same goes back with this endpoint; what comes now, at once.
    for (const Reply& reply : mailbox_->Close()) (void)take(reply);
  }
  return status;
}

ShmEndpoint::~ShmEndpoint() {
  PANDO_CHECK_EQ(in_flight(), 0u) << "an endpoint is destroyed with chains or calls in flight";
  client_->Detach(mailbox_);
  for (const ShmMailbox::AddedSlot& slot : mailbox_->CloseSlots()) {
    client_->CloseSlot(slot.link.get(), slot.slot);
  }
  for (const Target& target : targets_) {
    if (target.slot != kNoSlot) client_->CloseSlot(target.link.get(), target.slot);
  }
}

absl::StatusOr<LocalBuffer> ShmEndpoint::AllocateBuffer(size_t bytes) {
  if (bytes == 0 || bytes > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  }
  auto* memory =
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}, std::nothrow));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", bytes, " bytes"));
  }
  std::memset(memory, 0, bytes);
  buffers_.emplace_back(memory);
  return LocalBuffer{memory, static_cast<uint32_t>(bytes), 0};
}

// --- Chains.

void ShmEndpoint::DoPost(Chain* chain) {
  // What a chain of WRITEs touches has mostly been READ a moment before. There is nothing to wait
  // for, so it runs at once, behind the deferred ones: their memory has had time to come.
  const bool at_once = OnlyWrites(*chain);
  if (at_once && running_.empty() && !deferred_.empty()) RunDeferred();
  // Chains of one endpoint stay in order: behind a deferred one everything is, also what is posted
  // while others run.
  if ((at_once || !overlap()) && deferred_.empty() && running_.empty()) {
    if (!at_once) {
      TakeTime();
      Prefetch(*chain);
    }
    return Run(chain);
  }
  chain->MarkPosted(0);
  Prefetch(*chain);
  deferred_.push_back(chain);
}

void ShmEndpoint::PrefetchRange(const Target& target, MemorySpace space, uint64_t offset,
                                uint32_t bytes) {
  if (CheckRange(target.space_bytes[static_cast<int>(space)], offset, bytes) != nullptr) return;
  const std::byte* const shared = target.space[static_cast<int>(space)] + offset;
  const size_t ahead = std::min<size_t>(bytes, kPrefetchBytes);
  for (size_t i = 0; i < ahead; i += kShmLineBytes) __builtin_prefetch(shared + i);
}

void ShmEndpoint::WillRead(ServerId server, uint64_t offset, uint32_t bytes) {
  const int link = index_.Of(server);
  if (link == ServerIndex::kNone) return;
  PrefetchRange(targets_[link], MemorySpace::kMain, offset, bytes);
  hinted_offset_ = offset;
}

void ShmEndpoint::Prefetch(const Chain& chain) {
  const int link = index_.Of(chain.server());
  if (link == ServerIndex::kNone) return;  // Execute() says so
  for (const Verb& verb : chain.verbs()) {
    if (verb.kind == VerbKind::kRead && verb.offset == hinted_offset_) continue;
    PrefetchRange(targets_[link], verb.space, verb.offset, verb.bytes);
  }
  hinted_offset_ = kNoHint;
}

size_t ShmEndpoint::RunDeferred() {
  // A callee may post: what it defers is for the next Poll().
  running_.swap(deferred_);
  TakeTime();
  for (Chain*& chain : running_) Run(std::exchange(chain, nullptr));
  const size_t count = running_.size();
  running_.clear();
  return count;
}

void ShmEndpoint::TakeTime() { last_ns_ = ticks_.Anchor(); }

// Only READs have to be timed (rule F2), and reading the clock costs time: a chain starts when the
// one before it ended, or when the caller last read the clock.
void ShmEndpoint::Run(Chain* chain) {
  chain->MarkPosted(last_ns_);
  absl::Status status = Execute(chain);
  // A chain that ends with a READ has looked at the time already.
  if (chain->size() > 0 && chain->verbs().back().kind != VerbKind::kRead && HasRead(*chain)) {
    last_ns_ = ticks_.NowNs();
  }
  chain->Complete(std::move(status), last_ns_);
}

absl::Status ShmEndpoint::Execute(Chain* chain) {
  const int link = index_.Of(chain->server());
  if (link == ServerIndex::kNone) [[unlikely]] {
    return UnknownServerError(*chain);
  }
  if (!overtaken_.empty()) [[unlikely]] {
    if (auto overtaken = overtaken_.extract(chain)) return std::move(overtaken.mapped());
  }
  const Target& target = targets_[link];
  // Before: the dead answer nothing, and who gave no slot was dead by then, though the watcher may
  // not have said so yet. After: what was done may have been done to memory that nobody serves any
  // more.
  if (target.intent != nullptr && !target.link->gone.load(std::memory_order_acquire)) [[likely]] {
    PANDO_RETURN_IF_ERROR(ExecuteVerbs(target, chain));
    if (!target.link->gone.load(std::memory_order_acquire)) [[likely]]
      return absl::OkStatus();
  }
  return Annotate(target.link->GoneError(),
                  chain->size() == 0 ? "empty chain" : DescribeVerb(chain->verb(0)));
}

absl::Status ShmEndpoint::ExecuteVerbs(const Target& target, Chain* chain) {
  bool stored = false;  // a plain store may still be on its way to the others
  for (Verb& verb : chain->verbs()) {
    const int space = static_cast<int>(verb.space);
    const char* reason = CheckVerb(verb, target.space_bytes[space], target.packet_bytes);
    if (reason != nullptr) [[unlikely]]
      return VerbError(chain->server(), verb, reason);
    std::byte* shared = target.space[space] + verb.offset;
    switch (verb.kind) {
      case VerbKind::kRead:
        if (stored) FullFence();
        stored = false;
        // A processor retires in order: if an interrupt comes between two loads of the copy, the
        // ticks read behind them are of after it, without a fence.
        if (!TimedCopy::Copy(
                verb.pieces[0].data, shared, verb.bytes, [this] { return ticks_.NowNs(); },
                &last_ns_)) [[unlikely]] {
          return absl::AbortedError(absl::StrCat("server ", chain->server(), ": ",
                                                 DescribeVerb(verb), ": interrupted every time"));
        }
        break;
      case VerbKind::kWrite:
        if (verb.bytes == kWordBytes) {
          StoreWord(shared, GatherWord(verb));
        } else {
          ExecuteWithIntent(target.intent, verb, shared);
        }
        stored = true;
        break;
      case VerbKind::kCompareSwap:
        verb.old_value = CompareSwapWord(shared, verb.compare, verb.swap_or_add);
        stored = false;
        break;
      case VerbKind::kFetchAdd:
        verb.old_value = FetchAddWord(shared, verb.swap_or_add);
        stored = false;
        break;
    }
  }
  // Every READ that is posted later, by any client, sees a completed WRITE.
  if (stored) FullFence();
  return absl::OkStatus();
}

// --- Calls.

void ShmEndpoint::DoCall(PendingCall* call) { calls_.Start(call); }

absl::StatusOr<uint32_t> ShmEndpoint::SendRequest(ServerId server, std::string_view request) {
  const int link = index_.Of(server);
  if (link == ServerIndex::kNone) return UnknownServerError(server, "call");
  auto sequence = client_->Send(targets_[link].link.get(), ShmFrameType::kCall, request, mailbox_);
  if (!sequence.ok()) return Annotate(sequence.status(), "call");
  return sequence;
}

void ShmEndpoint::TakeReplies() {
  for (Reply& reply : mailbox_->TakeAll()) {
    calls_.Answer(reply.sequence, std::move(reply.status), reply.kind == ReplyKind::kCall,
                  std::move(reply.body));
  }
}

size_t ShmEndpoint::Poll() {
  const size_t chains = deferred_.empty() ? 0 : RunDeferred();
  if (calls_.empty()) [[likely]]
    return chains;
  TakeReplies();
  return chains + calls_.Finish(NowNs());
}

// --- Waiting.

void ShmEndpoint::Wait(int64_t until_ns) {
  if (!deferred_.empty()) return;
  if (!calls_.empty()) until_ns = calls_.NextDueNs(until_ns, NowNs());
  mailbox_->sleeper().Sleep(until_ns);
}

const Clock& ShmEndpoint::clock() const { return RealClock(); }

uint64_t ShmEndpoint::random_seed() { return SystemRandom(); }

}  // namespace pando
