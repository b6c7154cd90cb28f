// The suite's tests of chains: order, bounds, metering.
#include <cstring>
#include <utility>

#include "common/fabric/conformance.h"
#include "gmock/gmock.h"

namespace pando {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr MemorySpace kSpaces[] = {MemorySpace::kMain, MemorySpace::kLocks};

void Fill(LocalBuffer buffer, int byte) { std::memset(buffer.data, byte, buffer.bytes); }

std::vector<int> Values(LocalBuffer buffer) {
  std::vector<int> values;
  for (uint32_t i = 0; i < buffer.bytes; ++i)
    values.push_back(std::to_integer<int>(buffer.data[i]));
  return values;
}

}  // namespace

// --- What the fabric says about itself.

TEST_P(FabricConformance, ServersAndSizesAreKnown) {
  Fabric& fabric = cluster_->fabric(0);
  EXPECT_THAT(fabric.servers(), ElementsAre(1, 2));
  EXPECT_EQ(fabric.SpaceBytes(2, MemorySpace::kMain), options_.main_bytes);
  EXPECT_EQ(fabric.SpaceBytes(2, MemorySpace::kLocks), options_.lock_bytes);
  EXPECT_EQ(fabric.SpaceBytes(3, MemorySpace::kMain), 0u);
  EXPECT_EQ(fabric.SpaceBytes(0, MemorySpace::kLocks), 0u);
}

TEST_P(FabricConformance, CapabilitiesMakeSense) {
  const Capabilities& capabilities = cluster_->fabric(0).capabilities();
  EXPECT_FALSE(capabilities.name.empty());
  EXPECT_EQ(capabilities.packet_bytes, options_.packet_bytes);
  EXPECT_GE(capabilities.chain_verbs_max, 4u);
  EXPECT_LE(capabilities.chain_verbs_max, static_cast<uint32_t>(Chain::kMaxVerbs));
  EXPECT_GE(capabilities.min_write_interval_ns, 0);
}

TEST_P(FabricConformance, BuffersAreAlignedAndZero) {
  auto endpoint = Connect();
  for (const size_t bytes : {8, 64, 100, 1024, 1 << 20}) {
    const LocalBuffer buffer = Buffer(*endpoint, bytes);
    EXPECT_EQ(buffer.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % 64, 0u);
    EXPECT_THAT(Values(buffer), Each(0));
  }
  EXPECT_EQ(endpoint->AllocateBuffer(0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(FabricConformance, MemoryIsZeroAtStart) {
  auto endpoint = Connect();
  for (const MemorySpace space : kSpaces) {
    const LocalBuffer into = Buffer(*endpoint, 1024);
    Fill(into, 0xff);
    Chain chain(kServer);
    chain.Read(space, 4096, into);
    Run(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    EXPECT_THAT(Values(into), Each(0));
  }
}

// --- Effects and order inside a chain.

TEST_P(FabricConformance, WhatOneWritesAnotherReads) {
  auto writer = Connect(0), reader = Connect(1);
  for (const ServerId server : {ServerId{1}, ServerId{2}}) {
    for (const MemorySpace space : kSpaces) {
      const LocalBuffer from = Buffer(*writer, 1024), into = Buffer(*reader, 1024);
      for (uint32_t i = 0; i < from.bytes; ++i)
        from.data[i] = static_cast<std::byte>(i * 7 + server);
      for (const uint32_t bytes : {8u, 64u, 192u, 1024u}) {
        Chain write(server), read(server);
        write.Write(space, 2048, from.Slice(0, bytes));
        Run(*writer, write);
        ASSERT_TRUE(write.ok()) << write.status();
        read.Read(space, 2048, into.Slice(0, bytes));
        Run(*reader, read);
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_EQ(std::memcmp(from.data, into.data, bytes), 0);
      }
    }
  }
  // Each server has memory of its own.
  EXPECT_NE(Word(MemorySpace::kMain, 2048, 1), Word(MemorySpace::kMain, 2048, 2));
}

TEST_P(FabricConformance, WritesOfAChainTakeEffectInOrder) {
  auto endpoint = Connect();
  const LocalBuffer from = Buffer(*endpoint, 256 * 4);
  for (int round = 0; round < 20; ++round) {
    Chain chain(kServer);
    for (int i = 0; i < 4; ++i) {
      const LocalBuffer piece = from.Slice(i * 256, 256);
      Fill(piece, round * 4 + i);
      chain.Write(MemorySpace::kMain, 512, piece);
    }
    Run(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    const auto main = cluster_->memory(kServer).main.subspan(512, 256);
    EXPECT_THAT(main, Each(static_cast<std::byte>(round * 4 + 3)));
  }
}

TEST_P(FabricConformance, ReadSeesTheChainsOwnWritesAndAtomics) {
  auto endpoint = Connect();
  const LocalBuffer from = Buffer(*endpoint, 512), into = Buffer(*endpoint, 512);
  const LocalBuffer word = Buffer(*endpoint, 8);
  for (int round = 1; round <= 20; ++round) {
    Fill(from, round);
    Chain chain(kServer);
    chain.Write(MemorySpace::kMain, 1024, from);
    chain.Read(MemorySpace::kMain, 1024, into);
    Verb& cas = chain.CompareSwap(MemorySpace::kLocks, 64, round - 1, round);
    cas.fence = true;
    chain.Read(MemorySpace::kLocks, 64, word);
    Run(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    EXPECT_THAT(Values(into), Each(round));
    EXPECT_TRUE(chain.verb(2).swapped());
    EXPECT_EQ(std::to_integer<int>(word.data[0]), round);
  }
}

TEST_P(FabricConformance, FenceOrdersWritesAndAtomicsBehindReads) {
  auto endpoint = Connect();
  const LocalBuffer before = Buffer(*endpoint, 256), from = Buffer(*endpoint, 256);
  for (int round = 1; round <= 20; ++round) {
    Fill(from, round);
    Chain chain(kServer);
    chain.Read(MemorySpace::kMain, 0, before);
    chain.Write(MemorySpace::kMain, 0, from).fence = true;
    chain.FetchAdd(MemorySpace::kLocks, 0, 1);
    chain.CompareSwap(MemorySpace::kLocks, 0, round, round).fence = true;
    Run(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    EXPECT_THAT(Values(before), Each(round - 1));
    EXPECT_EQ(chain.verb(3).old_value, static_cast<uint64_t>(round));
  }
}

TEST_P(FabricConformance, AtomicsReturnWhatTheyFound) {
  auto endpoint = Connect();
  for (const MemorySpace space : kSpaces) {
    SetWord(space, 128, 5);
    Chain chain(kServer);
    chain.CompareSwap(space, 128, 4, 9);
    Run(*endpoint, chain);
    EXPECT_EQ(chain.verb(0).old_value, 5u);
    EXPECT_FALSE(chain.verb(0).swapped());
    EXPECT_EQ(Word(space, 128), 5u);

    chain.Reset(kServer);
    chain.CompareSwap(space, 128, 5, UINT64_MAX);
    Run(*endpoint, chain);
    EXPECT_TRUE(chain.verb(0).swapped());
    EXPECT_EQ(Word(space, 128), UINT64_MAX);

    chain.Reset(kServer);
    chain.FetchAdd(space, 128, 3);  // wraps
    Run(*endpoint, chain);
    EXPECT_EQ(chain.verb(0).old_value, UINT64_MAX);
    EXPECT_EQ(Word(space, 128), 2u);
  }
}

TEST_P(FabricConformance, GatherPutsPiecesOneAfterTheOther) {
  auto endpoint = Connect();
  const LocalBuffer a = Buffer(*endpoint, 64), b = Buffer(*endpoint, 128),
                    c = Buffer(*endpoint, 192);
  for (int i = 0; i < 64; ++i) a.data[i] = static_cast<std::byte>(i);
  for (int i = 0; i < 128; ++i) b.data[i] = static_cast<std::byte>(64 + i);
  for (int i = 0; i < 192; ++i) c.data[i] = static_cast<std::byte>(192 + i);
  // Whole lines, pieces that end inside words, one word of two halves.
  const std::vector<std::vector<LocalBuffer>> cases = {
      {a, b, c}, {a.Slice(0, 3), b.Slice(1, 60), c.Slice(2, 1)}, {b.Slice(5, 4), a.Slice(9, 4)}};
  for (const auto& pieces : cases) {
    std::vector<std::byte> expected;
    for (const LocalBuffer& piece : pieces) {
      expected.insert(expected.end(), piece.data, piece.data + piece.bytes);
    }
    Chain chain(kServer);
    EXPECT_EQ(chain.WriteGather(MemorySpace::kMain, 8192, pieces).bytes, expected.size());
    Run(*endpoint, chain);
    ASSERT_TRUE(chain.ok()) << chain.status();
    const auto found = cluster_->memory(kServer).main.subspan(8192, expected.size());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin()));
  }
}

TEST_P(FabricConformance, AFullChainWorks) {
  auto endpoint = Connect();
  const uint32_t verbs = cluster_->fabric(0).capabilities().chain_verbs_max;
  Chain chain(kServer);
  for (uint32_t i = 0; i < verbs; ++i) chain.FetchAdd(MemorySpace::kMain, 8 * i, i + 1);
  Run(*endpoint, chain);
  ASSERT_TRUE(chain.ok()) << chain.status();
  for (uint32_t i = 0; i < verbs; ++i) EXPECT_EQ(Word(MemorySpace::kMain, 8 * i), i + 1);
}

// --- The border.

TEST_P(FabricConformance, AddressesAreChecked) {
  auto endpoint = Connect();
  const LocalBuffer buffer = Buffer(*endpoint, 1024);
  Fill(buffer, 0xee);
  for (const MemorySpace space : kSpaces) {
    const uint64_t end = space == MemorySpace::kMain ? options_.main_bytes : options_.lock_bytes;
    for (const uint64_t offset : {end - 64, end, end + 4096, UINT64_MAX - 63, uint64_t{1} << 63}) {
      for (const VerbKind kind : {VerbKind::kRead, VerbKind::kWrite}) {
        Chain chain(2);
        const bool read = kind == VerbKind::kRead;
        if (read) chain.Read(space, offset, buffer.Slice(0, 128));
        if (!read) chain.Write(space, offset, buffer.Slice(0, 128));
        Run(*endpoint, chain);
        EXPECT_EQ(chain.status().code(), absl::StatusCode::kInvalidArgument) << offset;
        EXPECT_THAT(std::string(chain.status().message()),
                    AllOf(HasSubstr("server 2"), HasSubstr(read ? "READ" : "WRITE")));
      }
    }
    for (const uint64_t offset : {end, end + 8, UINT64_MAX - 7}) {
      Chain cas(2), faa(2);
      cas.CompareSwap(space, offset, 0, 1);
      faa.FetchAdd(space, offset, 1);
      Run(*endpoint, cas);
      Run(*endpoint, faa);
      EXPECT_EQ(cas.status().code(), absl::StatusCode::kInvalidArgument) << offset;
      EXPECT_THAT(std::string(cas.status().message()),
                  AllOf(HasSubstr("server 2"), HasSubstr("CAS")));
      EXPECT_EQ(faa.status().code(), absl::StatusCode::kInvalidArgument) << offset;
      EXPECT_THAT(std::string(faa.status().message()),
                  AllOf(HasSubstr("server 2"), HasSubstr("FAA")));
    }
    // The last bytes are there, and nothing above touched them.
    EXPECT_EQ(Word(space, end - 64, 2), 0u);
    Chain chain(2);
    chain.Write(space, end - 64, buffer.Slice(0, 64));
    chain.Read(space, end - 64, buffer.Slice(64, 64));
    Run(*endpoint, chain);
    EXPECT_TRUE(chain.ok()) << chain.status();
  }
}

TEST_P(FabricConformance, MisalignedAtomicsAreRefused) {
  auto endpoint = Connect();
  for (const uint64_t offset : {1, 4, 63, 68}) {
    Chain cas(kServer), faa(kServer);
    cas.CompareSwap(MemorySpace::kMain, offset, 0, UINT64_MAX);
    faa.FetchAdd(MemorySpace::kMain, offset, UINT64_MAX);
    Run(*endpoint, cas);
    Run(*endpoint, faa);
    EXPECT_EQ(cas.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(faa.status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (uint64_t offset = 0; offset < 128; offset += 8) {
    EXPECT_EQ(Word(MemorySpace::kMain, offset), 0u);
  }
}

TEST_P(FabricConformance, WritesAreAtMostOnePacket) {
  auto endpoint = Connect();
  const LocalBuffer buffer = Buffer(*endpoint, options_.packet_bytes + 64);
  Fill(buffer, 0x11);
  Chain chain(kServer);
  chain.Write(MemorySpace::kMain, 0, buffer);
  Run(*endpoint, chain);
  EXPECT_EQ(chain.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(cluster_->memory(kServer).main.first(buffer.bytes), Each(std::byte{0}));

  chain.Reset(kServer);
  chain.Write(MemorySpace::kMain, 0, buffer.Slice(0, options_.packet_bytes));
  chain.Read(MemorySpace::kMain, 0, buffer);  // READs may be longer
  Run(*endpoint, chain);
  EXPECT_TRUE(chain.ok()) << chain.status();
}

TEST_P(FabricConformance, AFailedVerbEndsItsChain) {
  auto endpoint = Connect();
  const LocalBuffer from = Buffer(*endpoint, 64);
  Fill(from, 0x77);
  Chain chain(kServer);
  chain.Write(MemorySpace::kMain, 0, from);
  chain.Write(MemorySpace::kMain, options_.main_bytes, from);
  chain.Write(MemorySpace::kMain, 64, from);
  chain.FetchAdd(MemorySpace::kLocks, 0, 1);
  Run(*endpoint, chain);
  EXPECT_EQ(chain.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Word(MemorySpace::kMain, 0), 0x7777777777777777u);
  EXPECT_EQ(Word(MemorySpace::kMain, 64), 0u);
  EXPECT_EQ(Word(MemorySpace::kLocks, 0), 0u);
  // The endpoint goes on.
  chain.Reset(kServer);
  chain.Write(MemorySpace::kMain, 64, from);
  Run(*endpoint, chain);
  EXPECT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(Word(MemorySpace::kMain, 64), 0x7777777777777777u);
}

// Not InvalidArgument: addresses come from remote memory, and servers join and leave.
TEST_P(FabricConformance, UnknownServersAreUnavailable) {
  auto endpoint = Connect();
  const LocalBuffer buffer = Buffer(*endpoint, 64);
  for (const ServerId server : {ServerId{0}, ServerId{3}, ServerId{65535}}) {
    const auto names = [server](const char* what) {
      return AllOf(HasSubstr("server " + std::to_string(server) + ":"), HasSubstr(what));
    };
    for (const char* verb : {"READ", "WRITE", "CAS", "FAA"}) {
      Chain chain(server);
      if (verb == std::string("READ")) chain.Read(MemorySpace::kMain, 0, buffer);
      if (verb == std::string("WRITE")) chain.Write(MemorySpace::kMain, 0, buffer);
      if (verb == std::string("CAS")) chain.CompareSwap(MemorySpace::kLocks, 0, 0, 1);
      if (verb == std::string("FAA")) chain.FetchAdd(MemorySpace::kMain, 0, 1);
      Run(*endpoint, chain);
      EXPECT_EQ(chain.status().code(), absl::StatusCode::kUnavailable) << chain.status();
      EXPECT_THAT(std::string(chain.status().message()), names(verb));
    }
    PendingCall call;
    call.server = server;
    call.request = "anybody there?";
    endpoint->Call(&call);
    Finish(*endpoint, call);
    EXPECT_EQ(call.status.code(), absl::StatusCode::kUnavailable) << call.status;
    EXPECT_THAT(std::string(call.status.message()), names("call"));
  }
  // The endpoint goes on, and nothing was done to the servers that there are.
  Chain chain(kServer);
  chain.FetchAdd(MemorySpace::kMain, 0, 1);
  Run(*endpoint, chain);
  EXPECT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(Word(MemorySpace::kMain, 0), 1u);
  EXPECT_EQ(Word(MemorySpace::kLocks, 0), 0u);
}

// --- Completion and metering.

TEST_P(FabricConformance, CompletionIsToldOnce) {
  struct Told {
    int times = 0;
    std::unique_ptr<Chain> chain;
  } told;
  auto endpoint = Connect();
  told.chain = std::make_unique<Chain>(kServer);
  told.chain->FetchAdd(MemorySpace::kMain, 0, 1);
  told.chain->set_on_done(
      [](Chain* chain, void* context) {
        auto* told = static_cast<Told*>(context);
        EXPECT_TRUE(chain->done());
        EXPECT_TRUE(chain->ok());
        ++told->times;
        told->chain.reset();  // allowed: the chain is the caller's again
      },
      &told);
  endpoint->Post(told.chain.get());
  while (told.times == 0) {
    if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
  }
  while (endpoint->Poll() != 0) {
  }
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(endpoint->in_flight(), 0u);
}

// A cheaper clock than the endpoint's may time them (common/base/ticks.h), set by it now and then.
constexpr int64_t kChainClockNs = 10 * kMicrosecondNs;

TEST_P(FabricConformance, ChainsCarryTheirTimes) {
  auto endpoint = Connect();
  const LocalBuffer into = Buffer(*endpoint, 1024);
  for (int i = 0; i < 10; ++i) {
    Chain chain(kServer);
    chain.Read(MemorySpace::kMain, 0, into);
    const int64_t before_ns = endpoint->clock().NowNs();
    Run(*endpoint, chain);
    EXPECT_GE(chain.posted_ns(), before_ns - kChainClockNs);
    EXPECT_GE(chain.started_ns(), chain.posted_ns());
    EXPECT_GE(chain.completed_ns(), chain.started_ns());
    EXPECT_LE(chain.completed_ns(), endpoint->clock().NowNs() + kChainClockNs);
  }
}

TEST_P(FabricConformance, MeterCountsWhatWasPosted) {
  auto endpoint = Connect();
  const LocalBuffer buffer = Buffer(*endpoint, 1024);
  Chain chain(kServer);
  chain.CompareSwap(MemorySpace::kLocks, 0, 0, 1);
  chain.Read(MemorySpace::kMain, 0, buffer);
  Run(*endpoint, chain);
  chain.Reset(kServer);
  const LocalBuffer pieces[] = {buffer.Slice(0, 64), buffer.Slice(128, 64)};
  chain.WriteGather(MemorySpace::kMain, 0, pieces);
  chain.Write(MemorySpace::kLocks, 0, buffer.Slice(0, 8));
  Run(*endpoint, chain);
  const Meter& meter = endpoint->meter();
  EXPECT_EQ(meter.chains, 2u);
  EXPECT_EQ(meter.round_trips, 2u);
  EXPECT_EQ(meter.cas, 1u);
  EXPECT_EQ(meter.reads, 1u);
  EXPECT_EQ(meter.writes, 2u);
  EXPECT_EQ(meter.bytes_read, 1024u);
  EXPECT_EQ(meter.bytes_written, 128u + 8 + 8);

  chain.Reset(kServer);
  chain.Read(MemorySpace::kMain, 0, buffer);
  chain.FetchAdd(MemorySpace::kMain, 0, 1).fence = true;
  chain.Write(MemorySpace::kMain, 64, buffer.Slice(0, 64)).fence = true;
  Run(*endpoint, chain);
  EXPECT_EQ(meter.chains, 3u);
  EXPECT_EQ(meter.round_trips, 5u);  // a fence costs one
  EXPECT_EQ(meter.faa, 1u);
}

TEST_P(FabricConformance, ChainsToSeveralServersRunSideBySide) {
  auto endpoint = Connect();
  Chain first(1), second(2);
  first.FetchAdd(MemorySpace::kMain, 0, 1);
  second.FetchAdd(MemorySpace::kMain, 0, 2);
  endpoint->Post(&first);
  endpoint->Post(&second);
  while (!first.done() || !second.done()) {
    EXPECT_GE(endpoint->in_flight(), 1u);
    if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
  }
  EXPECT_EQ(endpoint->in_flight(), 0u);
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 1), 1u);
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 2), 2u);
}

}  // namespace pando
