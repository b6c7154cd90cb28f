// Links between compute servers in the simulated network (peer.h): delays, ends that hear of a
// break at different times, and with a timing model what messages cost.
//
// What is under way to one end is a queue in the order of its arrival; each entry has an event. A
// message that is taken gives its sender credit again, some at a time.
//
// Without a timing model how long messages are under way, and how many may be, follows from the
// seed. With one a message takes its way as SENDs do: the thread of its sender pays for a post, it
// occupies the engines and links of both NICs (timed_network.h), all together takes
// NicProfile::Calls::one_way_ns where nothing else is under way, and the receiving port's one
// thread pays for its completion.
//
// Not thread-safe. Invariants:
//   1. A break leaves a seeded prefix of what is under way to each end; each end is told after
//      that, at a seeded time of its own.
//   2. A killed process is called no more, until its code is run to its end: then its links break.
//      A stopped one is called later. Neither takes anything from the others but their links to it.
//   3. Where there are no links no event and no random number is spent on them: runs without them
//      are what they were before there were any.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/peer.h"
#include "common/fabric/sim/core.h"
#include "common/fabric/sim/timed_network.h"

namespace pando::sim {

class SimPeerLink;

class PeerNetwork {
 public:
  explicit PeerNetwork(Core* core);

  // With a timing model.
  void set_timed(TimedNetwork* timed) { timed_ = timed; }

  // Statuses as Fabric::OpenPeers().
  absl::StatusOr<std::unique_ptr<PeerPort>> OpenPort(uint32_t process, const PeerOptions& options);

  // --- What ports and links do.
  void ClosePort(uint32_t port);
  absl::StatusOr<std::shared_ptr<PeerLink>> Connect(uint32_t port, const std::string& address,
                                                    PeerHandler* handler);
  PeerSend TrySend(uint32_t end, std::string_view message);
  void Close(uint32_t end);
  bool IsKilled(uint32_t end) const;

  // --- What befalls them.
  void KillProcess(uint32_t process);
  // Its code is run to its end: it hears of the end of its links.
  void DrainProcess(uint32_t process);
  void BreakAll(uint32_t process);
  void Cut(uint32_t one, uint32_t other, bool cut);
  void CutOneWay(uint32_t from, uint32_t to, bool cut);

  // --- Events. Those of the first three are for the process of their end, if it is there.
  uint32_t ProcessOf(uint32_t end) const;
  void OnDue(uint32_t end);
  void OnCredit(uint32_t end, uint32_t credits);
  void OnDeadline(uint32_t end);
  void OnBreak(uint32_t end);
  // With a timing model: the sender's NIC knows of the next message to this end, or it has arrived.
  void OnPosted(uint32_t end);
  void OnArrived(uint32_t end);

 private:
  enum class State : uint8_t { kConnecting, kOpen, kEnded };
  struct Entry {
    enum class Kind : uint8_t { kHello, kOpened, kMessage, kBroken };
    Kind kind = Kind::kMessage;
    int64_t due_ns = kNeverNs;  // kNeverNs: not known yet (timing model)
    std::string bytes;
    absl::Status why;
  };
  // The two ends of a link have neighbouring numbers.
  struct End {
    uint32_t process = 0, port = 0;
    State state = State::kConnecting;
    bool closing = false;  // by this end
    bool cut = false;      // nothing that is sent from now on arrives
    bool mute = false;     // nothing that this end sends from now on arrives; the other's does
    PeerHandler* handler = nullptr;
    std::shared_ptr<SimPeerLink> link;  // nullptr: nobody has it
    std::deque<Entry> incoming;
    // With a timing model: what is before these in `incoming` has been posted, or has arrived.
    size_t unposted = 0, unarrived = 0;
    int64_t last_due_ns = 0;
    uint32_t credits = 0;      // messages that it may send
    uint32_t credits_max = 0;  // of the link, each way
    uint32_t taken = 0;        // messages without credit for their sender yet
    bool wants_writable = false;
  };
  struct Port {
    uint32_t process = 0;
    PeerOptions options;
    bool closed = false;
    uint32_t links = 0;         // open ends
    int64_t busy_until_ns = 0;  // its thread; with a timing model
  };

  static uint32_t Other(uint32_t end) { return end ^ 1; }
  End& at(uint32_t end) { return *ends_[end]; }
  uint32_t AddEnd(uint32_t process, uint32_t port, uint32_t credits);
  // One way through the network.
  int64_t Delay();
  // Behind what is under way to this end. `not_before_ns`: nor earlier than that.
  void Push(uint32_t end, Entry entry, int64_t not_before_ns);
  void Post(uint32_t end, std::string_view message);
  // With a timing model: the first message from `*next` on, which moves behind it. nullptr: none.
  static Entry* NextMessage(End* end, size_t* next);
  // Nothing gets through any more.
  void CutWire(uint32_t end);
  // The end hears of it, behind a prefix of what is under way to it.
  void Tell(uint32_t end, absl::Status why);
  // The same, at once and without that.
  void TellNow(uint32_t end, absl::Status why);
  void Take(uint32_t end, Entry entry);
  void Accept(uint32_t end);
  void Open(uint32_t end);
  void TakeMessage(uint32_t end, const std::string& bytes);
  void Finish(uint32_t end, const absl::Status& why);
  void MakeWritable(uint32_t end);
  // Nothing gets from the one to the other.
  bool IsCut(uint32_t from, uint32_t to) const;
  void SetCut(uint32_t from, uint32_t to, bool cut);
  template <typename Visit>
  void ForEachEndOf(uint32_t process, const Visit& visit) {
    const auto count = static_cast<uint32_t>(ends_.size());
    for (uint32_t end = 0; end < count; ++end) {
      if (at(end).process == process && at(end).state != State::kEnded) visit(end);
    }
  }

  Core* const core_;
  TimedNetwork* timed_ = nullptr;
  Random random_;  // of its own
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<End>> ends_;
  std::map<std::string, uint32_t> addresses_;
};

}  // namespace pando::sim
