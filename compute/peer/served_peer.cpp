#include "compute/peer/served_peer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/peer/peer_service.h"

namespace pando {
namespace {

// So many answers fill a message, or nearly: they wait for no others.
constexpr size_t kReadyMany = 64;
// Chain times between two messages of answers, where others may still join the second.
constexpr int64_t kHoldChains = 2;

int64_t DeadlineNs(int64_t came_ns, uint64_t left_us) {
  constexpr auto kMostUs = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 4'000);
  return left_us > kMostUs ? kNeverNs : came_ns + static_cast<int64_t>(left_us) * kMicrosecondNs;
}

}  // namespace

ServedPeer::ServedPeer(PeerService* service, SessionContext* session,
                       std::shared_ptr<PeerLink> link)
    : service_(*service),
      session_(*session),
      link_(std::move(link)),
      other_(link_->other()),
      thrift_(service->options_.cheap_messages),
      hold_(&session->scheduler()) {}

ServedPeer::~ServedPeer() {
  PANDO_CHECK_EQ(under_way_.load(), 0u) << "requests were neither answered nor dropped";
}

// --- The port's thread.

void ServedPeer::OnMessage(PeerLink* link, std::string_view message) {
  PeerCounters::Add(&service_.counters_.messages_received);
  const absl::Status taken = Take(message);
  if (taken.ok()) return;
  PANDO_LOG_LIMITED(service_.closed_log_, WARNING)
      << "the link from compute server " << other_.compute_server << " is closed: " << taken;
  PeerCounters::Add(&service_.counters_.links_closed);
  link->Close();
}

absl::Status ServedPeer::Take(std::string_view message) {
  auto batch = std::make_unique<Batch>();
  batch->bytes = message;
  PeerMessageHeader header;
  PANDO_RETURN_IF_ERROR(ParsePeerRequests(batch->bytes, &header, &batch->requests));
  if (header.from != other_) return absl::DataLossError("requests in somebody else's name");
  const size_t count = batch->requests.size();
  PeerCounters::Add(&service_.counters_.requests, count);
  if (under_way_.load() + count > service_.options_.requests_max_of_link &&
      RuleHolds(Rule::kP4Most)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(under_way_.load(), " requests are under way, and ", count, " more have come; ",
                     service_.options_.requests_max_of_link, " is the most"));
  }
  batch->peer = shared_from_this();
  batch->came_ns = session_.NowNs();
  batch->for_us = header.to == service_.options_.identity;
  batch->left = count;
  batch->items.resize(count);
  for (size_t i = 0; i < count; ++i) {
    batch->items[i].batch = batch.get();
    batch->items[i].request = &batch->requests[i];
  }
  under_way_.fetch_add(count);
  batch->crowded = service_.under_way_.fetch_add(count) + count > service_.options_.requests_max;
  if (batch->crowded) PeerCounters::Add(&service_.counters_.refused, count);
  Batch* const posted = batch.release();  // it goes with its last answer
  // The service's sessions live longer than its port.
  PANDO_CHECK(session_.scheduler().Post([posted] { Begin(posted); }));
  return absl::OkStatus();
}

bool ServedPeer::Post(void (ServedPeer::*job)()) {
  return session_.scheduler().Post([self = shared_from_this(), job] { (self.get()->*job)(); });
}

void ServedPeer::OnWritable(PeerLink*) {
  if (waits_for_room_.exchange(false)) PANDO_CHECK(Post(&ServedPeer::OnRoom));
}

void ServedPeer::OnBroken(PeerLink* link, const absl::Status&) {
  const std::shared_ptr<ServedPeer> self = shared_from_this();
  gone_.store(true);
  PANDO_CHECK(Post(&ServedPeer::OnGone));
  service_.Forget(link);
}

// --- Coroutines.

void ServedPeer::Begin(Batch* batch) {
  const std::shared_ptr<ServedPeer> peer = batch->peer;
  peer->running_ += batch->left;
  peer->thrift_.Observe(peer->under_way_.load() + peer->answered_);
  Scheduler& scheduler = peer->session_.scheduler();
  // It goes with the last of its answers, which is not there before the first is executed, below.
  for (size_t i = 1; i < batch->items.size(); ++i) {
    Item* const item = &batch->items[i];
    scheduler.Spawn([item] { Run(item); });
  }
  Run(&batch->items.front());
}

void ServedPeer::Run(Item* item) {
  const std::shared_ptr<ServedPeer> peer = item->batch->peer;
  peer->Execute(item);
  peer->Finish(item);
}

void ServedPeer::Execute(Item* item) {
  const Batch& batch = *item->batch;
  PeerAnswer& answer = item->answer;
  if (!batch.for_us) {
    answer.not_owner = true;
    return;
  }
  if (batch.crowded) {
    answer.status = absl::ResourceExhaustedError(
        absl::StrCat("compute server ", service_.options_.identity.compute_server,
                     " has as many requests of peers as it takes: try again"));
    return;
  }
  if (gone_.load()) return;  // nobody hears of it
  const PeerRequest& request = item->request->request;
  OperationContext context(&session_, DeadlineNs(batch.came_ns, item->request->left_us));
  if (context.expired()) {
    answer.status = context.DeadlineError("waiting for the owner's service");
    return;
  }
  session_.AdoptServers();
  answer.is_scan = request.operation == PeerRequest::Operation::kScan;
  answer.is_erasing = request.operation == PeerRequest::Operation::kEraseRange;
  answer.is_lending = request.operation == PeerRequest::Operation::kLend;
  service_.executor_->Execute(context, request, &answer);
}

void ServedPeer::Finish(Item* item) {
  --running_;
  ready_.push_back(item);
  if (!answering_) {
    answering_ = true;
    session_.scheduler().Yield();
    Answer();
    answering_ = false;
  } else if (running_ == 0 || ready_.size() >= kReadyMany) {
    hold_.Unpark();
  }
}

void ServedPeer::Answer() {
  while (!ready_.empty() && !full_) {
    const auto hold_ns = static_cast<double>(session_.WaitNs(kHoldChains));
    const int64_t until_ns = answered_ns_ + static_cast<int64_t>(thrift_.share() * hold_ns);
    if (running_ > 0 && ready_.size() < kReadyMany && session_.NowNs() < until_ns) {
      hold_.ParkUntil(until_ns);
    }
    SendReady();
  }
}

void ServedPeer::SendReady() {
  while (!ready_.empty()) {
    if (gone_.load()) return DropReady();
    writer_.StartAnswers({service_.options_.identity, other_});
    size_t count = 0;
    while (count < ready_.size() &&
           writer_.Add(ready_[count]->request->number, ready_[count]->answer)) {
      ++count;
    }
    // Before it is tried: OnWritable(), and what the peer asks next, may come at any time after
    // that.
    waits_for_room_.store(true);
    under_way_.fetch_sub(count);
    switch (link_->TrySend(writer_.bytes())) {
      case PeerSend::kSent:
        waits_for_room_.store(false);
        answered_ns_ = session_.NowNs();
        answered_ = count;
        PeerCounters::Add(&service_.counters_.messages_sent);
        PeerCounters::Add(&service_.counters_.answers, count);
        ForgetReady(count);
        break;
      case PeerSend::kFull:
        under_way_.fetch_add(count);
        full_ = true;
        return;
      case PeerSend::kBroken:
        under_way_.fetch_add(count);
        return DropReady();
      case PeerSend::kRefused:
        PANDO_CHECK(false) << "a message of " << writer_.bytes().size() << " bytes";
    }
  }
}

void ServedPeer::DropReady() {
  under_way_.fetch_sub(ready_.size());
  ForgetReady(ready_.size());
}

void ServedPeer::ForgetReady(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Batch* const batch = ready_.front()->batch;
    ready_.pop_front();
    service_.under_way_.fetch_sub(1);
    if (--batch->left == 0) delete batch;
  }
}

void ServedPeer::OnRoom() {
  full_ = false;
  if (answering_) return;
  answering_ = true;
  Answer();
  answering_ = false;
}

void ServedPeer::OnGone() {
  full_ = false;
  DropReady();
}

}  // namespace pando
