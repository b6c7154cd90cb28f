// For tests of the timing model: a profile of round numbers.
#pragma once

#include <cstdint>
#include <memory>

#include "common/fabric/sim/sim_test_util.h"

namespace pando::sim {

inline constexpr uint32_t kBytesANs = 10;  // link and PCIe: 80 Gb/s
inline constexpr int64_t kDoorbell = 500, kCompletion = 400, kWire = 200, kPcieRead = 600;
inline constexpr int64_t kHold = 350, kHostLatency = 580, kOnChipHold = 110, kOnChipLatency = 120;
inline constexpr int64_t kSend = 50, kReceive = 20, kQueuePair = 70, kFetchChain = 450;
inline constexpr int64_t kFetchPayload = 550, kHeader = 100 / kBytesANs;
inline constexpr uint32_t kInline = 128;

// What every verb pays: a request without payload there, an answer without payload back.
inline constexpr int64_t kThere = kDoorbell + kHeader + kWire;
inline constexpr int64_t kBack = kWire + kCompletion;

inline NicProfile RoundNumbers() {
  NicProfile profile;
  profile.name = "round";
  profile.nic = {.doorbell_ns = kDoorbell,
                 .fetch_chain_ns = kFetchChain,
                 .fetch_payload_ns = kFetchPayload,
                 .inline_bytes = kInline,
                 .send_ns = kSend,
                 .receive_ns = kReceive,
                 .queue_pair_ns = kQueuePair,
                 .completion_ns = kCompletion};
  profile.link = {.gbits = 8 * kBytesANs,
                  .header_bytes = 100,
                  .packet_bytes = 4096,
                  .propagation_ns = 50,
                  .switch_ns = 150};
  profile.pcie = {.read_ns = kPcieRead, .gbits = 8 * kBytesANs};
  profile.atomics = {.buckets = 16,
                     .waiting_max = 64,
                     .host_hold_ns = kHold,
                     .host_latency_ns = kHostLatency,
                     .on_chip_hold_ns = kOnChipHold,
                     .on_chip_latency_ns = kOnChipLatency,
                     .on_chip_read_ns = 30};
  profile.calls = {.one_way_ns = 1000, .server_cpu_ns = 300};
  return profile;
}

inline SimOptions Timed(const NicProfile& profile = RoundNumbers()) {
  SimOptions options;
  options.mode = DeliveryMode::kWhole;
  options.nic = std::make_shared<NicProfile>(profile);
  return options;
}

// A session that has nothing to do but what the test posts.
struct TimedClient : TestClient {
  explicit TimedClient(TestWorld* on, bool on_server_host = false)
      : TestClient(on_server_host ? on->world.NewFabricOnHostOf(kServer) : on->world.NewFabric()) {}
  // From doorbell to completion.
  int64_t RunFor() {
    Run();
    EXPECT_TRUE(chain.ok()) << chain.status();
    return chain.completed_ns() - chain.posted_ns();
  }
};

}  // namespace pando::sim
