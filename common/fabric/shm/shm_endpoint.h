// An endpoint of the shm fabric: executes chains on mapped memory where it stands, and makes calls
// through the client's connections. Belongs to one thread (fabric.h); Wake() is for others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ticks.h"
#include "common/fabric/fabric.h"
#include "common/fabric/link/call_list.h"
#include "common/fabric/server_index.h"
#include "common/fabric/shm/shm_client.h"

namespace pando {

class ShmEndpoint final : public Endpoint, private CallList::Connections {
 public:
  // Takes an intent slot on every server that is there.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Open(std::shared_ptr<ShmClient> client,
                                                        uint16_t compute_server,
                                                        uint32_t incarnation);
  ~ShmEndpoint() override;

  void WillRead(ServerId server, uint64_t offset, uint32_t bytes) override;
  size_t Poll() override;
  size_t in_flight() const override { return calls_.size() + deferred_.size(); }
  absl::StatusOr<LocalBuffer> AllocateBuffer(size_t bytes) override;
  void Wait(int64_t until_ns) override;
  void AdoptServers(uint32_t added) override;
  void Wake() override { mailbox_->sleeper().Wake(); }
  void WakeAt(int64_t) override {}
  void set_runner(std::function<void()>) override {}
  const Clock& clock() const override;
  uint64_t random_seed() override;

 protected:
  void DoPost(Chain* chain) override;
  void DoCall(PendingCall* call) override;

 private:
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  static constexpr uint64_t kNoHint = UINT64_MAX;
  // Of each verb; nodes are smaller, mostly.
  static constexpr size_t kPrefetchBytes = 4096;

  // One server, as flat as the hot path wants it.
  struct Target {
    std::shared_ptr<ShmLink> link;
    std::byte* space[2] = {};
    uint64_t space_bytes[2] = {};
    std::byte* intent = nullptr;
    uint32_t packet_bytes = 0;
    uint32_t slot = kNoSlot;
  };
  struct FreeDeleter {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };

  ShmEndpoint(std::shared_ptr<ShmClient> client, uint16_t compute_server, uint32_t incarnation);
  static Target TargetOf(std::shared_ptr<ShmLink> link);
  absl::Status OpenSlots();
  void Run(Chain* chain);
  // Looks at the clock, once for a batch of chains; from then on the time comes from ticks.
  void TakeTime();
  size_t RunDeferred();
  void Prefetch(const Chain& chain);
  static void PrefetchRange(const Target& target, MemorySpace space, uint64_t offset,
                            uint32_t bytes);
  absl::Status Execute(Chain* chain);
  absl::Status ExecuteVerbs(const Target& target, Chain* chain);
  absl::StatusOr<uint32_t> SendRequest(ServerId server, std::string_view request) override;
  void ForgetRequest(uint32_t sequence) override { client_->Forget(sequence); }
  void TakeReplies();

  const std::shared_ptr<ShmClient> client_;
  const std::shared_ptr<ShmMailbox> mailbox_;
  std::vector<Target> targets_;
  ServerIndex index_;  // of the targets
  CallList calls_{this, kShmBodyBytesMax};
  // Chains that Poll() executes, in the order they were posted; their memory is on its way
  // meanwhile.
  std::vector<Chain*> deferred_, running_;
  // Of these, those to a server whose other life has been taken up since, and what becomes of them.
  absl::flat_hash_map<const Chain*, absl::Status> overtaken_;
  int64_t last_ns_ = 0;  // the last time that a chain took
  TickClock ticks_;
  uint64_t hinted_offset_ = kNoHint;  // what WillRead() has fetched ahead for the next chain
  std::vector<std::unique_ptr<std::byte[], FreeDeleter>> buffers_;
};

}  // namespace pando
