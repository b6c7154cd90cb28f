// Options and statistics of the simulated fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "common/base/clock.h"
#include "common/fabric/nic/nic_profile.h"

namespace pando::sim {

// How the bytes of one READ or WRITE meet memory. Verbs of other endpoints run in between.
enum class DeliveryMode : uint8_t {
  // Each aligned 64-byte line is whole; lines go one by one in a seeded order. A hardware NIC.
  kLines,
  // Aligned 8-byte words go one by one in a seeded order: neither lines nor the copy order can be
  // relied on, so the fabric needs checksums. SoftRoCE at its worst.
  kWords,
  // Lines in a seeded order; inside a line a WRITE goes upwards and a READ downwards, word by word
  // (rule F1). Shared memory.
  kShmOrder,
  // Each READ and WRITE is whole and chains run in order: the fast mode, for counting and for long
  // runs.
  kWhole,
};

std::string_view DeliveryModeName(DeliveryMode mode);
bool ParseDeliveryMode(std::string_view name, DeliveryMode* mode);

struct SimOptions {
  uint64_t seed = 1;
  DeliveryMode mode = DeliveryMode::kLines;

  // The timing of a real network instead of an unkind one: with a profile, `mode` is kWhole, queue
  // pairs keep all order, nothing is lost, and none of the delays below is used. Processes and
  // servers must not be killed, paused or cut off then (CHECKed).
  std::shared_ptr<const NicProfile> nic;

  // --- The network, one way. A chain's delay is base + U(0, jitter); rarely it is held up much
  // longer.
  int64_t delay_ns = 1 * kMicrosecondNs;
  int64_t jitter_ns = 1 * kMicrosecondNs;
  double long_delay_probability = 0.005;
  int64_t long_delay_ns = 30 * kMicrosecondNs;

  // --- Inside the memory server's NIC (not in kWhole).
  // From the moment a verb may start until its first bytes move: U(0, start_jitter). Verbs that the
  // contract leaves unordered overtake each other here.
  int64_t start_jitter_ns = 600;
  // One event moves 1..burst_units lines (words where lines are not atomic), then a gap of U(0,
  // unit_gap).
  int burst_units = 4;
  int64_t unit_gap_ns = 400;
  // A verb that stops somewhere in the middle for U(0, stall).
  double stall_probability = 0.03;
  int64_t stall_ns = 12 * kMicrosecondNs;

  // --- Time that passes while a session's thread works; not with a timing model. Before and after
  // each look at the clock inside a runner: U(0, this); and rarely the thread is stopped there for
  // U(0, stall). Everybody else waits meanwhile, as on one processor. 0: a turn takes no time.
  int64_t turn_look_ns = 0;
  double turn_stall_probability = 0.0;
  int64_t turn_stall_ns = 0;

  // The clock of each compute server and memory server goes faster or slower than the world's by up
  // to so many thousandths; not with a timing model.
  int64_t clock_drift_permille = 0;

  // --- Control calls, one way.
  int64_t call_delay_ns = 20 * kMicrosecondNs;
  double call_request_loss = 0.0;
  double call_reply_loss = 0.0;
  // A call without an answer fails after this long even if its own deadline is later:
  // DeadlineExceeded.
  int64_t call_timeout_ns = 5 * kSecondNs;

  // --- The client's side.
  int64_t wake_delay_ns = 200;  // Wake() to the runner: U(1, this)
  // A dead server is noticed after U(0, this).
  int64_t death_seen_ns = 1500 * kMillisecondNs;

  // How long a sender whose queue pairs were destroyed waits until its NIC gives up.
  int64_t cut_seen_ns = 50 * kMicrosecondNs;

  // What had left a sender that was killed may be held up by U(0, this): its death is heard of when
  // its last packet has come. 0: as any other packet.
  int64_t kill_late_ns = 0;

  // --- Queue pairs that break (SimWorld::BreakQueuePairs, SetBreakProbability).
  // From the post of the chain that is to break its queue pair: U(0, this).
  int64_t break_within_ns = 4 * kMicrosecondNs;
  int64_t break_seen_ns = 5 * kMicrosecondNs;  // until the sender notices: U(1, this)
  // What had left the sender may be held up by U(0, this).
  int64_t break_late_ns = 200 * kMicrosecondNs;
  // From there until the server destroys the old queue pair: a call's way and U(0, this).
  int64_t reopen_ns = 500 * kMicrosecondNs;

  // --- Links between compute servers (peer.h); delays and breaks as above. Of each link so many
  // messages are under way at most, each way: U(1, this). 255 is the most.
  uint32_t peer_messages_max = 32;
  // Of a link that is cut in one direction neither end notices for U(1, this).
  int64_t peer_silent_ns = 1 * kMillisecondNs;

  // --- What Capabilities say.
  bool cheap_messages = true;
  uint32_t packet_bytes = 4096;
  uint32_t on_chip_bytes = 256 << 10;
  // False: an atomic is a read and a later write as far as plain WRITEs are concerned, so that a
  // WRITE in between is lost (rule L4: such a fabric needs CAS to unlock).
  bool write_unlock = true;
};

// What happened. Tests assert that each unkindness really occurs.
struct SimStats {
  uint64_t events = 0;
  uint64_t chains = 0;
  uint64_t verbs = 0;
  uint64_t overtakes =
      0;  // WRITEs and atomics done before an earlier READ or atomic of their queue pair
  uint64_t split_verbs = 0;  // delivered in more than one event
  uint64_t stalled_verbs = 0;
  uint64_t long_delays = 0;
  uint64_t lost_unlocks = 0;  // WRITEs that an atomic in progress overwrote (write_unlock == false)
  uint64_t calls = 0;
  uint64_t lost_requests = 0;
  uint64_t lost_replies = 0;
  uint64_t events_held = 0;       // that came to a memory server that was stopped
  uint64_t calls_too_late = 0;    // executed although their caller had given up
  uint64_t verbs_after_kill = 0;  // executed although their sender was dead
  uint64_t verbs_cut = 0;        // posted, never executed: sender dead, cut off, or its pair broken
  uint64_t verbs_after_cut = 0;  // finished at the server although their sender was cut off
  uint64_t queue_pairs_broken = 0;
  uint64_t queue_pairs_reopened = 0;
  uint64_t chains_broken = 0;      // failed because their queue pair broke
  uint64_t verbs_after_break = 0;  // executed although their sender had seen the chain fail
  uint64_t links_cut = 0;          // SimWorld::CutLink
  uint64_t peer_links = 0;
  uint64_t peer_messages = 0;       // sent
  uint64_t peer_messages_lost = 0;  // of those, and of hellos: not delivered, as their link ended
  uint64_t peer_links_broken = 0;   // between living ends
  uint64_t peer_hellos_lost = 0;    // of links, or their answers: between who is cut off
  uint64_t peer_links_mute = 0;     // SimWorld::CutPeersOneWay
  uint64_t runner_calls = 0;
  uint64_t turn_ns = 0;       // that passed inside runners (SimOptions::turn_look_ns)
  uint64_t turn_stalls = 0;   // of those
  uint64_t doorbells = 0;     // with a timing model
  uint64_t packets_held = 0;  // times that a limit on packets was reached (SimWorld::LimitPackets)
  double cpu_ns = 0;          // spent by all sessions' threads, with a timing model
};

// How long the parts of a NIC have been busy since the start, nanoseconds (SimOptions::nic): what
// was asked of each so far.
struct NicUse {
  int64_t link_out_ns = 0, link_in_ns = 0;
  int64_t send_ns = 0, receive_ns = 0;  // its engines
  int64_t pcie_ns = 0;                  // out of the host's memory
  int64_t atomics_ns = 0;               // the busier of the engines for atomics
  int64_t lock_ns = 0;                  // the internal lock of atomics that was busiest
};

}  // namespace pando::sim
