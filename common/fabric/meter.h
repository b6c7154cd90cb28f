// What a session sent: verbs, chains, bytes and round trips. These do not depend on the machine, so
// tests assert them. Not thread-safe: one meter an endpoint; MeterTotals are summed by value.
#pragma once

#include <cstdint>

#include "common/fabric/chain.h"

namespace pando {

struct Meter {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t cas = 0;
  uint64_t faa = 0;
  uint64_t chains = 0;
  uint64_t round_trips = 0;  // of chains one by one; an operation counts parallel chains once
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;  // WRITE payload and 8 an atomic
  uint64_t calls = 0;

  void Count(const ChainTally& tally) {
    ++chains;
    round_trips += tally.round_trips;
    reads += tally.count(VerbKind::kRead);
    writes += tally.count(VerbKind::kWrite);
    cas += tally.count(VerbKind::kCompareSwap);
    faa += tally.count(VerbKind::kFetchAdd);
    bytes_read += tally.bytes_read();
    bytes_written += tally.bytes_written();
  }
  void Add(const Meter& other);
  uint64_t verbs() const { return reads + writes + cas + faa; }
};

}  // namespace pando
