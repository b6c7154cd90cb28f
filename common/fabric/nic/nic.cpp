#include "common/fabric/nic/nic.h"

namespace pando {
namespace {

constexpr double kBitsPerByte = 8;
constexpr double kPsPerBitAtOneGbit = 1000;  // a gigabit a second

}  // namespace

NicTimes::NicTimes(const NicProfile& profile)
    : doorbell(ToPs(profile.nic.doorbell_ns)),
      fetch_chain(ToPs(profile.nic.fetch_chain_ns)),
      fetch_payload(ToPs(profile.nic.fetch_payload_ns)),
      send(ToPs(profile.nic.send_ns)),
      receive(ToPs(profile.nic.receive_ns)),
      queue_pair(ToPs(profile.nic.queue_pair_ns)),
      completion(ToPs(profile.nic.completion_ns)),
      wire(ToPs(profile.link.propagation_ns + profile.link.switch_ns)),
      pcie_read(ToPs(profile.pcie.read_ns)),
      hold{ToPs(profile.atomics.host_hold_ns), ToPs(profile.atomics.on_chip_hold_ns)},
      engine{ToPs(profile.atomics.host_engine_ns), ToPs(profile.atomics.on_chip_engine_ns)},
      atomic_latency{ToPs(profile.atomics.host_latency_ns),
                     ToPs(profile.atomics.on_chip_latency_ns)},
      on_chip_read(ToPs(profile.atomics.on_chip_read_ns)),
      link_ps_per_byte(kBitsPerByte * kPsPerBitAtOneGbit / profile.link.gbits),
      pcie_ps_per_byte(kBitsPerByte * kPsPerBitAtOneGbit / profile.pcie.gbits),
      header_bytes(static_cast<uint64_t>(profile.link.header_bytes)),
      packet_bytes(static_cast<uint64_t>(profile.link.packet_bytes)),
      inline_bytes(static_cast<uint64_t>(profile.nic.inline_bytes)),
      bucket_mask(static_cast<uint64_t>(profile.atomics.buckets) - 1),
      waiting_max(static_cast<uint64_t>(profile.atomics.waiting_max)) {}

}  // namespace pando
