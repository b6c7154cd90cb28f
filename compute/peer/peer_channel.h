// The link to one peer, and the calls that share it. Internal to compute/peer; peer_client.h has
// the contract.
//
// Thread safety: everything under one mutex, which is never held across a suspension. Callers are
// coroutines of any session; the port's thread calls the handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/rate_limited_log.h"
#include "common/fabric/peer.h"
#include "common/sched/scheduler.h"
#include "compute/peer/message_thrift.h"
#include "compute/peer/peer_counters.h"
#include "compute/peer/peer_format.h"

namespace pando {

// Of what was asked of one, or is to be.
absl::Status PeerEndedError();

// Unanswered requests to a peer.
inline constexpr size_t kPeerRequestsMax = 1024;

// A request that waits, in its caller's frame.
struct PeerCall {
  enum class State : uint8_t {
    kUnsent,       // waits for its message
    kExpired,      // its deadline passed before that went
    kSent,         // waits for its answer, or its deadline passed before that came
    kAnswered,     // `answer` has it
    kLost,         // was sent; the link broke
    kNotSent,      // was not; a link that had been open broke
    kUnreachable,  // was not; no link could be opened
  };

  PeerCall(Scheduler* scheduler, int64_t deadline_ns, const PeerRequest& request,
           PeerAnswer* answer)
      : parking(scheduler),
        deadline_ns(deadline_ns),
        request(request),
        answer(answer),
        bytes(PeerRequestBytes(request)) {}

  bool waits() const { return state == State::kUnsent || state == State::kSent; }

  Parking parking;
  const int64_t deadline_ns;
  const PeerRequest& request;
  PeerAnswer* const answer;
  const size_t bytes;
  State state = State::kUnsent;
  absl::Status why;            // kLost, kNotSent, kUnreachable
  uint16_t slot = 0;           // kSent
  bool watches = false;        // kUnsent: looks again when its patience is at an end
  PeerCall* before = nullptr;  // kUnsent: in the channel's list
  PeerCall* behind = nullptr;
};

class PeerChannel final : public PeerHandler, public std::enable_shared_from_this<PeerChannel> {
 public:
  PeerChannel(PeerPort* port, PeerIdentity self, PeerIdentity other, const Clock* clock,
              bool cheap_messages, PeerCounters* counters);
  ~PeerChannel() override;

  // Until the call is over: answered, its deadline, or the end of the link (PeerCall::State).
  // Nothing of it is known here afterwards. `address`: where a link is made to, if there is none.
  void Run(Scheduler* scheduler, std::string_view address, PeerCall* call);

  // False: the port does not know it (any more).
  bool has_link();
  // Somebody waits for the peer, who has not answered what was sent by then.
  bool IsOverdue(int64_t sent_by_ns);
  // The link breaks, and there is no other one (peer_client.h).
  void NoteEnded();
  PeerIdentity other() const { return other_; }

 private:
  // Slots of callers that have left. A peer that owes so much is not waited for.
  static constexpr size_t kOverdueMax = kPeerRequestsMax / 2;
  static constexpr int kSmoothing = 8;
  static constexpr int64_t kPatienceNsMin = 50 * kMicrosecondNs;
  static constexpr int64_t kPatienceNsMax = 10 * kMillisecondNs;

  struct Slot {
    bool used = false;
    uint16_t uses = 0;         // makes numbers differ
    PeerCall* call = nullptr;  // nullptr: its caller has left
    uint64_t message = 0;
    int64_t sent_ns = 0;
  };
  struct SentMessage {
    uint64_t id;
    int64_t sent_ns;
  };

  void OnMessage(PeerLink* link, std::string_view message) override;
  void OnWritable(PeerLink* link) override;
  void OnBroken(PeerLink* link, const absl::Status& why) override;

  // --- All under the mutex.
  void Append(PeerCall* call);
  void Remove(PeerCall* call);
  // The call is over; its caller is woken.
  static void End(PeerCall* call, PeerCall::State state, const absl::Status& why = {});
  void EndUnsent(PeerCall::State state, const absl::Status& why);
  void FreeSlots();
  static uint32_t NumberOf(const Slot& slot, size_t index) {
    return static_cast<uint32_t>(slot.uses) << 16 | static_cast<uint32_t>(index);
  }
  int64_t PatienceNs() const;
  bool MaySend() const;
  // What may go. `impatient`: as many messages as it takes until this one has gone.
  void Send(const PeerCall* impatient);
  // The first call that waits for others' answers, although it could go, watches the time.
  void WakeFirst();
  // When a call that waits looks again by itself; it is sent if that is long ago.
  int64_t Watch(PeerCall* call, int64_t began_ns, int64_t now_ns);
  void Connect();
  // The next message, if anybody still waits for one. False: it cannot go now.
  bool SendMessage();
  // The calls from the first one on that fit a message, which is written; how many. Those that come
  // too late end.
  size_t WriteMessage(int64_t now_ns);
  absl::Status TakeAnswers(std::string_view message);
  absl::Status TakeAnswer(const PeerAnswerView& answer, bool is_other);
  void MarkAnswered(uint64_t message, int64_t now_ns);
  // The link is of no use any more.
  void GiveUp(const absl::Status& why);

  PeerPort* const port_;
  const PeerIdentity self_, other_;
  const Clock* const clock_;
  PeerCounters* const counters_;

  std::mutex mutex_;
  std::string address_;
  std::shared_ptr<PeerLink> link_;  // until OnBroken()
  bool open_ = false;               // the link has been
  bool writable_ = false;           // and takes messages
  absl::Status given_up_;           // why this side closed it
  bool ended_ = false;              // the peer has
  bool gathering_ = false;          // somebody lets others run, and sends then
  PeerCall* first_ = nullptr;       // unsent, in the order in which they came
  PeerCall* last_ = nullptr;
  size_t unsent_ = 0;
  size_t unsent_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint16_t> free_;  // slots, the one that is used next at the back
  size_t overdue_ = 0;
  std::vector<SentMessage> unanswered_;
  MessageThrift thrift_;
  uint64_t messages_ = 0;
  int64_t answer_ns_ = kMillisecondNs;  // smoothed: from a message to the first of its answers
  PeerMessageWriter writer_;
  std::vector<PeerAnswerView> answers_;  // scratch
  RateLimitedLog closed_log_;
};

}  // namespace pando
