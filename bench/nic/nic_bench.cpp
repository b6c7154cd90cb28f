#include "bench/nic/nic_bench.h"

#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "bench/host/data_files.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"

namespace pando::bench {
namespace {

constexpr ServerId kServer = 1;
constexpr uint64_t kMainBytes = uint64_t{1} << 30;  // sparse
constexpr uint64_t kLockBytes = 256 << 10;
constexpr int64_t kWarmUpNs = 50 * kMicrosecondNs;
// Of all threads together; and each thread does some batches.
constexpr uint64_t kVerbs = 300'000;
constexpr uint64_t kBatchesMin = 20;
constexpr int64_t kStaggerNs = 3 * kMicrosecondNs;
// So far apart that no two threads share a bucket of the atomics.
constexpr uint64_t kWordStride = 8;
constexpr uint64_t kThreadBytes = 1 << 20;

// A thread in its loop.
class LoadThread {
 public:
  LoadThread(sim::SimWorld* world, Fabric* fabric, const NicProfile::Published& load, int number)
      : world_(*world), load_(load), number_(static_cast<uint64_t>(number)) {
    auto endpoint = fabric->Connect(1, 1);
    PANDO_CHECK_OK(endpoint.status());
    endpoint_ = *std::move(endpoint);
    auto buffer = endpoint_->AllocateBuffer(load.bytes);
    PANDO_CHECK_OK(buffer.status());
    buffer_ = *buffer;
    for (int i = 0; i < load.batch; ++i) {
      chains_.push_back(std::make_unique<Chain>(kServer));
      completed_.push_back(chains_.back().get());
    }
    endpoint_->set_runner([this] { OnTurn(); });
    // Not all at once: in a world without chance they would stay together.
    endpoint_->WakeAt(world_.clock().NowNs() + kStaggerNs * number / load.threads);
  }

  void Stop() { stopping_ = true; }
  bool idle() const { return endpoint_->in_flight() == 0; }
  uint64_t batches() const { return batches_; }

  // What ended after `since_ns`.
  uint64_t verbs = 0;
  int64_t batch_ns = 0;  // the sum over batches
  uint64_t measured = 0;
  int64_t since_ns = 0;

 private:
  void OnTurn() {
    if (load_.window) return OnWindowTurn();
    if (endpoint_->in_flight() > 0) return;
    if (load_.verb == "lock") return OnLockTurn();
    const int64_t now_ns = world_.clock().NowNs();
    if (batches_ > 0 && begin_ns_ >= since_ns && !stopping_) {
      verbs += static_cast<uint64_t>(load_.batch * load_.chain);
      batch_ns += now_ns - begin_ns_;
      ++measured;
    }
    if (stopping_) return;
    begin_ns_ = now_ns;
    ++batches_;
    for (auto& chain : chains_) PostNext(chain.get());
  }

  // What has completed is posted again, as one list.
  void OnWindowTurn() {
    const int64_t now_ns = world_.clock().NowNs();
    std::vector<Chain*> completed;
    completed.swap(completed_);
    for (const Chain* chain : completed) {
      if (!chain->done() || now_ns < since_ns || stopping_) continue;
      verbs += chain->size();
      batch_ns += now_ns - chain->posted_ns();
      ++measured;
    }
    if (stopping_) return;
    for (size_t i = 0; i < completed.size(); ++i) {
      endpoint_->set_overlap(i + 1 < completed.size());
      PostNext(completed[i]);
    }
    posted_ += completed.size();
    batches_ = posted_ / chains_.size();
  }

  // In turn: the CAS until it succeeds, and the WRITE.
  void OnLockTurn() {
    Chain* const chain = chains_[0].get();
    const int64_t now_ns = world_.clock().NowNs();
    const bool taken = batches_ > 0 && chain->verb(0).is_atomic() && chain->verb(0).swapped();
    if (taken && now_ns >= since_ns && !stopping_) {
      ++verbs;
      ++measured;
      batch_ns += now_ns - begin_ns_;
    }
    if (stopping_ && !taken) return;
    const MemorySpace space = load_.on_chip ? MemorySpace::kLocks : MemorySpace::kMain;
    const uint64_t word = load_.addresses == 0 ? number_ : number_ % load_.addresses;
    if (batches_ == 0 || !chain->verb(0).is_atomic()) begin_ns_ = now_ns;
    ++batches_;
    chain->Reset(kServer);
    if (taken) {
      chain->Write(space, word * kWordStride, buffer_);
    } else {
      chain->CompareSwap(space, word * kWordStride, 0, 1);
    }
    endpoint_->Post(chain);
  }

  void PostNext(Chain* chain) {
    chain->Reset(kServer);
    for (int i = 0; i < load_.chain; ++i) AddVerb(chain);
    const auto note = [](Chain* done, void* thread) {
      static_cast<LoadThread*>(thread)->completed_.push_back(done);
    };
    if (load_.window) chain->set_on_done(note, this);
    endpoint_->Post(chain);
  }

  void AddVerb(Chain* chain) {
    const MemorySpace space = load_.on_chip ? MemorySpace::kLocks : MemorySpace::kMain;
    const uint64_t turn = turns_++;
    if (load_.verb == "cas") {
      // Own words: each thread has some, so that neither a bucket nor a word is shared.
      const auto words = static_cast<uint64_t>(load_.batch);
      const uint64_t word = load_.addresses == 0 ? number_ * words + turn % words
                                                 : (turn + number_ * 7) % load_.addresses;
      chain->CompareSwap(space, word * kWordStride, 0, 0);
      return;
    }
    const uint64_t offset = load_.on_chip ? 0 : number_ * kThreadBytes;
    if (load_.verb == "read") {
      chain->Read(space, offset, buffer_);
    } else {
      chain->Write(space, offset, buffer_);
    }
  }

  sim::SimWorld& world_;
  const NicProfile::Published& load_;
  const uint64_t number_;
  std::unique_ptr<Endpoint> endpoint_;
  LocalBuffer buffer_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::vector<Chain*> completed_;  // window: to be posted again
  uint64_t posted_ = 0;            // chains
  uint64_t turns_ = 0;
  uint64_t batches_ = 0;
  int64_t begin_ns_ = 0;
  bool stopping_ = false;
};

std::shared_ptr<const NicProfile> ProfileFor(const NicProfile& profile, bool is_inline) {
  auto copy = std::make_shared<NicProfile>(profile);
  if (!is_inline) copy->nic.inline_bytes = 0;
  return copy;
}

}  // namespace

NicResult RunNicBench(const NicProfile& profile, const NicProfile::Published& load) {
  sim::SimWorld world({.mode = sim::DeliveryMode::kWhole,
                       .nic = ProfileFor(profile, load.is_inline),
                       .packet_bytes = UINT32_MAX});
  world.AddServer(kServer, kMainBytes, kLockBytes);
  std::shared_ptr<Fabric> fabric = world.NewFabric();
  NicResult result;
  {
    std::vector<std::unique_ptr<LoadThread>> threads;
    for (int i = 0; i < load.threads; ++i) {
      threads.push_back(std::make_unique<LoadThread>(&world, fabric.get(), load, i));
    }
    const int64_t since_ns = world.clock().NowNs() + kWarmUpNs;
    for (auto& thread : threads) thread->since_ns = since_ns;
    const uint64_t batches =
        kBatchesMin + kVerbs / static_cast<uint64_t>(load.threads * load.batch * load.chain);
    while (threads[0]->batches() < batches || world.clock().NowNs() < 2 * since_ns) {
      PANDO_CHECK(world.Step());
    }
    const int64_t end_ns = world.clock().NowNs();
    int64_t batch_ns = 0;
    uint64_t measured = 0, verbs = 0;
    for (auto& thread : threads) {
      verbs += thread->verbs;
      batch_ns += thread->batch_ns;
      measured += thread->measured;
      thread->Stop();
    }
    for (auto& thread : threads) {
      while (!thread->idle()) PANDO_CHECK(world.Step());
    }
    result.mops =
        static_cast<double>(verbs) / static_cast<double>(end_ns - since_ns) * kMicrosecondNs;
    result.mean_us = static_cast<double>(batch_ns) / static_cast<double>(measured) / kMicrosecondNs;
    result.verbs = world.stats().verbs;
    result.doorbells = world.stats().doorbells;
  }
  return result;
}

std::string DescribeLoad(const NicProfile::Published& load) {
  std::string text = absl::StrCat(load.threads, " x ", load.window ? "window of " : "", load.batch);
  if (load.chain > 1) absl::StrAppend(&text, " x ", load.chain);
  absl::StrAppend(&text, " ", absl::AsciiStrToUpper(load.verb), " ", load.bytes, " B");
  if (load.verb == "cas" || load.verb == "lock") {
    absl::StrAppend(&text, load.addresses == 0   ? " on words of their own"
                           : load.addresses == 1 ? " on one word"
                                                 : absl::StrCat(" on ", load.addresses, " words"));
  }
  absl::StrAppend(&text, load.on_chip ? ", NIC memory" : "", load.is_inline ? "" : ", not inline");
  return text;
}

absl::StatusOr<NicProfile> LoadNicProfile(std::string_view name) {
  PANDO_ASSIGN_OR_RETURN(const std::filesystem::path file,
                         FindDataFile("NIC profile", "nic_profiles", name));
  return NicProfile::Load(file);
}

}  // namespace pando::bench
