// What is done to owners of keys (owned trees) and to nobody else.
//
// Each kind is off unless it is asked for, and has random numbers of its own: a run without it is
// what it was before there was any.
#pragma once

#include <cstdint>
#include <string>

namespace pando {

struct SimRunOptions;
struct MixOptions;

struct OwnerFaults {
  // Times that two compute servers do not reach each other, in both directions or in one, for up to
  // `peer_cut_max_ns`. Both live, and reach everybody else.
  int peer_cuts = 0;
  int64_t peer_cut_max_ns = 0;
  // Times that a member does not reach a memory server (the one that has its log, the catalog's,
  // or any) for about a lease: for less, for as long, or for more, so that this server alone has it
  // for dead. There have to be leases.
  int member_cuts = 0;
  // In the place of each compute server that is killed another one comes, up to `replace_max_ns`
  // later: while others take over what the dead one had, or before anybody knows of its death.
  bool replace_killed = false;
  int64_t replace_max_ns = 0;
  // Times, at most one, that a member and the memory server with its log die in the same moment.
  // Some time later another member accepts the loss (rule D6). There are neither leases nor other
  // deaths, so that nothing else may be lost; nor large values, which are DataLoss then.
  int log_deaths = 0;
  // For a test: the history is not told what may be lost.
  bool losses_unsaid = false;
};

// Which of them a run of owned trees has, derived from its seed.
void MixOwnerFaults(uint64_t seed, const MixOptions& mix, SimRunOptions* options);

// For people; begins with a comma.
std::string DescribeOwnerFaults(const SimRunOptions& options);

}  // namespace pando
