// What goes wrong at a memory server where a rule is switched off, and does not where it holds.
// Built with PANDO_BROKEN_VARIANTS, apart from the room's other tests.
#include <gtest/gtest.h>

#include "common/base/rule.h"
#include "memory/client_table.h"
#include "memory/lease_table.h"

#ifndef PANDO_BROKEN_VARIANTS
#error "this test needs the variants"
#endif

namespace pando::memory {
namespace {

class BrokenRule {
 public:
  explicit BrokenRule(Rule rule) { BreakRule(rule); }
  ~BrokenRule() { BreakRule(Rule::kNone); }
};

// Whether a client that has left is taken for a later one, once all ids have gone round.
bool TheGoneComeBack() {
  PeerId peer = 0;  // a connection has one identity
  ClientTable clients;
  IdSource ids(1);
  const ClientId first = *clients.Join(++peer, &ids);
  clients.Leave(first);
  while (true) {
    const ClientId next = *clients.Join(++peer, &ids);
    if (next.compute_server == first.compute_server) break;
    clients.Leave(next);
  }
  return clients.StateOf(first) == ClientLiveness::kJoined;
}

TEST(MemoryRulesTest, C0) {
  EXPECT_FALSE(TheGoneComeBack());
  BrokenRule c0(Rule::kC0);
  EXPECT_TRUE(TheGoneComeBack());
}

// Whether somebody is declared dead whom a server that was away for long had no chance to hear.
bool TheUnheardDie() {
  constexpr int64_t kLeaseNs = 1000;
  LeaseTable leases(kLeaseNs);
  leases.Renew(1, 0);
  return !leases.Step(5 * kLeaseNs).empty();
}

TEST(MemoryRulesTest, C1) {
  EXPECT_FALSE(TheUnheardDie());
  BrokenRule c1(Rule::kC1);
  EXPECT_TRUE(TheUnheardDie());
}

}  // namespace
}  // namespace pando::memory
