// Asks the owners of keys (rules P1 to P3): all sessions of a client share one link to each peer,
// and messages on it.
//
//   PeerClient peers(port.get(), me, &fabric_clock);
//   PeerAnswer answer;
//   absl::Status asked = peers.Call(context, {owner, address}, request, &answer);  // a coroutine
//   if (asked.ok() && answer.not_owner) ...  // else see answer.status
//
// A message goes as soon as fewer than two of ours are unanswered, or when what waits would fill
// one; who calls lets the other ready coroutines of his session run first, so that what an answer
// has woken goes together again. A message counts as answered with the first of its answers. Where
// that takes longer than usual (twice the smoothed time) what waits goes all the same: requests
// that the owner keeps waiting hold up no others.
//
// Thread safety: Call() from any session, in a coroutine of it. The port may be a PeerService's,
// too; it is destroyed before the PeerClient, after the last Call() has returned.
//
// Invariants:
//   1. A write is sent at most once. Whether it was is known: its outcome is unknown only where it
//      was, and the link broke, or the deadline passed, before its answer came.
//   2. A number is used again when its answer has come, or with another link. There is one link to
//      a peer at a time: the next is made when OnBroken() has been called for the one before.
//   3. No more than kPeerRequestsMax requests to a peer are unanswered; further ones wait unsent.
//   4. What a peer sends is validated. A peer that sends anything else loses the link.
//   5. Nothing of a call is touched once Call() has returned, whatever comes afterwards.
//   6. Nothing is sent to a peer that has ended (NoteEnded()), and nobody waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/fabric/peer.h"
#include "compute/core/session_context.h"
#include "compute/peer/peer_counters.h"
#include "compute/peer/peer_format.h"

namespace pando {

class PeerChannel;

struct PeerAddress {
  PeerIdentity identity;
  std::string_view address;  // of its port
};

class PeerClient {
 public:
  // `self`: as the port says it. `clock` is the sessions'. `cheap_messages`: the fabric's
  // (Capabilities), for rule P2.
  PeerClient(PeerPort* port, PeerIdentity self, const Clock* clock, bool cheap_messages);
  ~PeerClient();
  PeerClient(const PeerClient&) = delete;
  PeerClient& operator=(const PeerClient&) = delete;

  // OK: the peer has answered, see `answer`. Else nobody has:
  //   DeadlineExceeded    in time; there was no effect
  //   IsOutcomeUnknown()  a write was sent, and the link broke or the deadline passed
  //   others              no link to the peer could be opened, or be used: no effect. Unavailable:
  //                       nobody is there, or does not answer; ask the map again
  //   FailedPrecondition  this compute server was cut off; there was no effect
  // Reads that were on a link that broke go again, over the next one, and so does what had not been
  // sent.
  absl::Status Call(OperationContext& context, const PeerAddress& peer, const PeerRequest& request,
                    PeerAnswer* answer);

  // Whom somebody waits for, and who has not answered what was sent by then. Any thread.
  std::vector<PeerIdentity> Overdue(int64_t sent_by_ns);
  // The peer has ended, for good, and may be stopped, with its link up. That breaks, and calls end
  // as with any that does, but that none is made to the peer again: those that are not of unknown
  // outcome end Unavailable. Any thread, again and again.
  void NoteEnded(PeerIdentity identity);

  const PeerCounters& counters() const { return counters_; }

 private:
  std::shared_ptr<PeerChannel> Find(const PeerAddress& peer);  // nullptr: it has ended

  PeerPort* const port_;
  const PeerIdentity self_;
  const Clock* const clock_;
  const bool cheap_messages_;
  PeerCounters counters_;
  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<PeerChannel>> channels_;
  absl::flat_hash_set<uint64_t> ended_;
};

}  // namespace pando
