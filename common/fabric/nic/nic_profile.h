// What a NIC, its link, its host's PCIe and its users' CPUs cost, as numbers: the constants of the
// timing model (nic.h), read from a data file in which every one of them names its source.
//
// A file is a JSON object: "name", "description", the groups "cpu", "nic", "link", "pcie",
// "atomics" and "calls", whose fields are objects {"value": NUMBER, "source": TEXT}, and
// "published": what was measured on such hardware and where it was published, for comparison
// (bench/nic).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pando {

// Times in nanoseconds (fractions matter: a message takes some 8 of them), sizes in bytes,
// bandwidths in gigabits a second. None is negative; those that divide are not 0.
struct NicProfile {
  // Time of the thread that owns a session.
  struct Cpu {
    double post_chain_ns = 0;   // of each doorbell: of a list of chains (chain_list.h)
    double post_verb_ns = 0;    // of each verb
    double completion_ns = 0;   // of polling and handing over one completion
    double search_node_ns = 0;  // of a node that has been read: checks, decoding, search
    double operation_ns = 0;    // of an index operation besides: cache lookup, bookkeeping
    double record_ns = 0;       // of a record in an owner's memory, while its partition is held
    double wake_ns = 0;         // from one thread's wake-up to another thread's reaction
  };
  struct Nic {
    double doorbell_ns = 0;  // from the doorbell to the first byte of a request that came with it
    double fetch_chain_ns = 0;    // besides, for a list of several verbs: read over PCIe
    double fetch_payload_ns = 0;  // besides, for a WRITE that is too long to come with its request
    double inline_bytes = 0;      // the longest that does
    double send_ns = 0;           // of the requester's engine, a message
    double receive_ns = 0;        // of the responder's engine, a message
    double queue_pair_ns = 0;     // between two messages of one queue pair
    double completion_ns = 0;     // from the last response to what the thread can poll
  };
  struct Link {
    double gbits = 0;         // each way
    double header_bytes = 0;  // of a packet, all layers
    double packet_bytes = 0;  // payload of the largest packet (MTU)
    double propagation_ns = 0;
    double switch_ns = 0;
  };
  struct Pcie {
    double read_ns = 0;  // a round trip to the memory of the host
    double gbits = 0;    // each way
  };
  // An atomic on host memory holds one of the NIC's internal locks for two PCIe transactions
  // (Sherman, SIGMOD'22, section 3.2.2); on NIC memory it holds one for a shorter while. Those that
  // wait for a lock have places in the NIC: when all are taken an atomic, and whatever comes behind
  // it, stays where it is.
  struct Atomics {
    double buckets = 0;          // internal locks; a power of two
    double waiting_max = 0;      // atomics that wait; with as many the NIC receives no further verb
    double host_hold_ns = 0;     // between two atomics of a bucket, host memory
    double host_engine_ns = 0;   // between any two atomics on host memory
    double host_latency_ns = 0;  // from the start to the response
    double on_chip_hold_ns = 0;
    double on_chip_engine_ns = 0;
    double on_chip_latency_ns = 0;
    double on_chip_read_ns = 0;  // of a READ of NIC memory, from its start to the response
  };
  // Two-sided calls to a memory server.
  struct Calls {
    double one_way_ns = 0;
    double server_cpu_ns = 0;  // of its one thread, a call
  };

  // A published measurement: `threads` threads of one compute server, each with a queue pair of its
  // own, have up to `batch` chains of `chain` verbs in flight. They post them with a doorbell each
  // and wait for all of them; or, with `window`, post again what has completed since they looked
  // last, as one list with one doorbell. "lock": each takes a word by CAS, again and again until it
  // has it, and frees it by a WRITE; chains are ignored.
  struct Published {
    std::string verb;  // "read", "write", "cas" or "lock"
    bool on_chip = false;
    bool is_inline = true;  // "inline": payloads come with their requests where they fit
    int threads = 1;
    int batch = 1;
    bool window = false;
    int chain = 1;
    uint32_t bytes = 8;
    uint64_t addresses = 0;  // cas, lock: distinct words; 0: each thread has its own
    std::string unit;        // "mops" (of locks: taken) or "us" (mean latency)
    double value = 0;
    std::string source;
  };

  std::string name;
  std::string description;
  Cpu cpu;
  Nic nic;
  Link link;
  Pcie pcie;
  Atomics atomics;
  Calls calls;
  std::vector<Published> published;

  // InvalidArgument names the field: missing, negative, not a number, unknown, without a source.
  static absl::StatusOr<NicProfile> Parse(std::string_view json);
  // NotFound, InvalidArgument as above with the file's name.
  static absl::StatusOr<NicProfile> Load(const std::filesystem::path& file);
};

}  // namespace pando
