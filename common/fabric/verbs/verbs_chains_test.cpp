// What the verbs fabric promises of chains beyond the suite: doorbells and completions, lists,
// queue pairs at first use, thread domains. Needs an RDMA device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fabric/chain_list.h"
#include "common/fabric/recoverable.h"
#include "common/fabric/verbs/thread_domain.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_fabric_test_util.h"

namespace pando {
namespace {

using testing::HasSubstr;

TEST_F(VerbsFabricTest, AChainIsOneDoorbellAndOneCompletion) {
  Start();
  auto endpoint = *Connect({.alone_doorbells = false})->Connect(1, 1);
  const LocalBuffer buffer = *endpoint->AllocateBuffer(4096);
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  for (int i = 0; i < 10; ++i) {
    Chain chain(1);
    chain.CompareSwap(MemorySpace::kLocks, 0, 0, 0);
    chain.Read(MemorySpace::kMain, 0, buffer.Slice(0, 1024));
    chain.Write(MemorySpace::kMain, 2048, buffer.Slice(0, 64)).fence = true;
    chain.Write(MemorySpace::kMain, 4096, buffer.Slice(0, 1024));
    endpoint->Post(&chain);
    Finish(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
  }
  EXPECT_EQ(counters.doorbells, 10u);
  EXPECT_EQ(counters.completions, 10u);
  EXPECT_EQ(counters.work_requests, endpoint->meter().verbs());
  EXPECT_EQ(counters.doorbells, endpoint->meter().chains);
  EXPECT_EQ(counters.inlined, 10u) << "the small WRITEs, and no others";
  EXPECT_EQ(counters.failures + counters.broken, 0u);
}

// As on a NIC: chain_list.h.
TEST_F(VerbsFabricTest, AShortChainThatIsAloneHasADoorbellForEachVerb) {
  Start();
  auto endpoint = *Connect({.alone_doorbells = true})->Connect(1, 1);
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  uint64_t expected = 0, doorbells = 0;
  for (uint32_t verbs = 1; verbs <= kAloneVerbsMax + 1; ++verbs) {
    Chain chain(1);
    for (uint32_t i = 0; i < verbs; ++i) chain.FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(&chain);
    Finish(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    for (uint32_t i = 0; i < verbs; ++i) EXPECT_EQ(chain.verb(i).old_value, expected++);
    EXPECT_EQ(counters.doorbells, doorbells += verbs <= kAloneVerbsMax ? verbs : 1);
    EXPECT_EQ(counters.completions, verbs);
  }
}

TEST_F(VerbsFabricTest, MoreChainsThanFitWaitTheirTurn) {
  Start();
  auto endpoint = *Connect({.work_requests = 16})->Connect(1, 1);
  constexpr int kChains = 100;
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < kChains; ++i) {
    chains.push_back(std::make_unique<Chain>(1));
    for (int verb = 0; verb < 5; ++verb) chains.back()->FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(chains.back().get());
  }
  EXPECT_GT(endpoint->in_flight(), 3u);
  uint64_t expected = 0;
  for (const auto& chain : chains) {
    Finish(*endpoint, *chain);
    ASSERT_TRUE(chain->ok()) << chain->status();
    for (int verb = 0; verb < 5; ++verb) EXPECT_EQ(chain->verb(verb).old_value, expected++);
  }
  EXPECT_EQ(endpoint->in_flight(), 0u);
  EXPECT_EQ(VerbsCountersOf(*endpoint).completions, 100u);
  EXPECT_LE(VerbsCountersOf(*endpoint).doorbells, 100u);
}

TEST_F(VerbsFabricTest, QueuePairsAreMadeWhenFirstUsed) {
  EchoHandler other_handler;
  Start();
  VerbsServerThread other({.server_id = 2, .main_bytes = 1 << 20}, &other_handler);
  auto fabric = *ConnectVerbs({server_->location(), other.location()});
  auto endpoint = *fabric->Connect(1, 1);
  std::string reply;
  ASSERT_TRUE(Call(*endpoint, &reply).ok());
  EXPECT_EQ(server_->server().queue_pairs() + other.server().queue_pairs(), 0u)
      << "calls need none";
  ASSERT_TRUE(Add(*endpoint).ok());
  EXPECT_EQ(server_->server().queue_pairs(), 1u);
  EXPECT_EQ(other.server().queue_pairs(), 0u);
  ASSERT_TRUE(Add(*endpoint).ok());
  EXPECT_EQ(server_->server().queue_pairs(), 1u);
  endpoint.reset();
  while (server_->server().queue_pairs() > 0) std::this_thread::yield();
}

// The first chain waits for the server, the session's thread does not, and nothing happens late.
TEST_F(VerbsFabricTest, TheFirstChainWaitsAsLongAsItMay) {
  Start();
  auto fabric = Connect();
  auto endpoint = *fabric->Connect(1, 1);
  server_->handler().SetPaused(true);  // by the call the server is stuck
  PendingCall call;
  call.server = 1;
  call.request = "hello";
  endpoint->Call(&call);
  const int64_t start_ns = endpoint->clock().NowNs();
  Chain hasty(1), patient(1), endless(1);
  for (Chain* chain : {&hasty, &patient, &endless}) chain->FetchAdd(MemorySpace::kMain, 0, 1);
  hasty.LimitWait(kNeverNs, 50 * kMillisecondNs);
  patient.LimitWait(start_ns + 100 * kMillisecondNs, kNeverNs);
  for (Chain* chain : {&hasty, &patient, &endless}) endpoint->Post(chain);
  EXPECT_LT(endpoint->clock().NowNs() - start_ns, 40 * kMillisecondNs);
  Finish(*endpoint, hasty);
  EXPECT_TRUE(absl::IsDeadlineExceeded(hasty.status())) << hasty.status();
  EXPECT_THAT(std::string(hasty.status().message()), HasSubstr("server 1"));
  EXPECT_FALSE(patient.done());
  Finish(*endpoint, patient);
  EXPECT_TRUE(absl::IsDeadlineExceeded(patient.status())) << patient.status();
  EXPECT_GE(endpoint->clock().NowNs() - start_ns, 100 * kMillisecondNs);
  EXPECT_LT(endpoint->clock().NowNs() - start_ns, kSecondNs);
  server_->handler().SetPaused(false);
  Finish(*endpoint, endless);
  EXPECT_TRUE(endless.ok()) << endless.status();
  EXPECT_GT(endless.started_ns(), endless.posted_ns());
  EXPECT_EQ(Word(0), 1u) << "what ended before has not happened";
  while (!call.done) {
    if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
  }
}

TEST_F(VerbsFabricTest, ChainsOfOneTurnAreOneDoorbell) {
  Start();
  auto endpoint = *Connect()->Connect(1, 1);
  ASSERT_TRUE(Add(*endpoint, 64).ok());
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  const uint64_t before = counters.doorbells;
  std::vector<std::unique_ptr<Chain>> chains;
  const auto post = [&](int verbs) {
    chains.push_back(std::make_unique<Chain>(1));
    for (int i = 0; i < verbs; ++i) chains.back()->FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(chains.back().get());
  };
  endpoint->set_overlap(true);
  for (int i = 0; i < 3; ++i) post(2);
  EXPECT_EQ(counters.doorbells, before) << "others have something to post";
  endpoint->set_overlap(false);
  post(1);
  EXPECT_EQ(counters.doorbells, before + 1) << "the last one waits for nobody";
  endpoint->set_overlap(true);
  post(1);
  endpoint->Poll();
  EXPECT_EQ(counters.doorbells, before + 2);
  for (int i = 0; i < 3; ++i) post(16);  // more than a list takes
  EXPECT_EQ(counters.doorbells, before + 3) << "full";
  uint64_t expected = 0;
  for (const auto& chain : chains) {
    Finish(*endpoint, *chain);
    ASSERT_TRUE(chain->ok()) << chain->status();
    for (const Verb& verb : chain->verbs()) EXPECT_EQ(verb.old_value, expected++);
  }
  EXPECT_EQ(counters.completions, chains.size() + 1);
}

// Rule L5: what was before the failing chain of a list is done, what was behind it may be.
TEST_F(VerbsFabricTest, AListBreaksAtTheFailingChain) {
  Start();
  constexpr size_t kChains = 4;
  auto endpoint = *Connect()->Connect(1, 1);
  const VerbsCounters& counters = VerbsCountersOf(*endpoint);
  const LocalBuffer buffer = *endpoint->AllocateBuffer(64 * kChains);
  LocalBuffer foreign = *endpoint->AllocateBuffer(64);
  foreign.key ^= 0x5500;
  ASSERT_TRUE(Add(*endpoint, 64).ok());
  for (size_t at = 0; at < 3 * kChains; ++at) {
    const size_t failing = at / 3, failing_verb = at % 3;
    SCOPED_TRACE(testing::Message() << "verb " << failing_verb << " of chain " << failing);
    const uint64_t found = Word(0), doorbells = counters.doorbells, failures = counters.failures;
    std::vector<std::unique_ptr<Chain>> chains;
    endpoint->set_overlap(true);
    for (size_t i = 0; i < kChains; ++i) {
      Chain& chain = *chains.emplace_back(std::make_unique<Chain>(1));
      const auto fail_at = [&](size_t verb) {
        if (i == failing && verb == failing_verb) chain.Read(MemorySpace::kMain, 128, foreign);
      };
      fail_at(0);
      chain.FetchAdd(MemorySpace::kMain, 0, 1);
      fail_at(1);
      chain.Read(MemorySpace::kMain, 0, buffer.Slice(64 * static_cast<uint32_t>(i), 64));
      fail_at(2);
      endpoint->Post(&chain);
    }
    endpoint->set_overlap(false);
    for (const auto& chain : chains) Finish(*endpoint, *chain);
    EXPECT_EQ(counters.doorbells, doorbells + 1);
    EXPECT_EQ(counters.failures, failures + 1);
    for (size_t i = 0; i < kChains; ++i) {
      const absl::Status& status = chains[i]->status();
      EXPECT_EQ(status.ok(), i < failing) << i << ": " << status;
      EXPECT_EQ(absl::IsUnavailable(status), i >= failing) << i << ": " << status;
      EXPECT_EQ(IsRecoverable(status), i >= failing) << i << ": " << status;
      if (i > failing) {
        EXPECT_THAT(std::string(status.message()), HasSubstr("a chain before it failed"));
      }
    }
    EXPECT_THAT(std::string(chains[failing]->status().message()),
                HasSubstr("READ of 64 bytes at main+128: "));
    // The buffers are the session's again.
    std::memset(buffer.data, 0x5a, buffer.bytes);
    AwaitReconnect(*endpoint);
    for (uint32_t i = 0; i < buffer.bytes; ++i) ASSERT_EQ(buffer.data[i], std::byte{0x5a});
    EXPECT_GE(Word(0), found + failing + (failing_verb > 0 ? 1 : 0));
    EXPECT_LE(Word(0), found + kChains);
  }
}

// As a provider that knows thread domains: software devices do not.
class FakeThreadDomains final : public ThreadDomainCalls {
 public:
  ibv_td* Allocate(const VerbsDevice& device) override {
    ++domains;
    return new ibv_td{device.context()};
  }
  void Free(ibv_td* domain) override {
    --domains;
    delete domain;
  }
  ibv_pd* AllocateParent(const VerbsDevice& device, ibv_td*) override {
    if (fail_parent) return nullptr;
    ++parents;
    return device.pd();
  }
  void FreeParent(ibv_pd*) override { --parents; }

  bool fail_parent = false;
  int domains = 0, parents = 0;
};

TEST_F(VerbsFabricTest, EachSessionHasAThreadDomainWhereThereIsOne) {
  Start();
  FakeThreadDomains domains;
  for (const bool fail_parent : {false, true}) {
    domains.fail_parent = fail_parent;
    auto fabric = Connect({.thread_domain_calls = &domains});
    auto endpoint = *fabric->Connect(1, 1), another = *fabric->Connect(1, 1);
    EXPECT_EQ(domains.domains, 2);
    EXPECT_EQ(domains.parents, fail_parent ? 0 : 2);
    EXPECT_TRUE(Add(*endpoint).ok());
    EXPECT_TRUE(Add(*another).ok());
    endpoint.reset();
    another.reset();
    EXPECT_EQ(domains.domains + domains.parents, 0);
  }
}

}  // namespace
}  // namespace pando
