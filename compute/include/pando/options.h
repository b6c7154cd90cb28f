// Options of the Pando client. Every field has a default and a reason. Here and where a program
// fills in a struct itself every member has an initializer: who names only some of them gets no
// warning of the compiler (-Wmissing-field-initializers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pando {

// The techniques of the system, each a run-time option. Everything off is FG+, the baseline of the
// Sherman paper (SIGMOD'22, section 3); Techniques::Sherman() is the system as published; the
// default is everything on, but for narrow_writes and narrow_anywhere.
struct Techniques {
  // Sherman 4.5: the write-back and the release of the lock are one chain. Off: two round trips.
  bool command_combining = true;
  // Sherman 4.3: global locks in NIC memory where the fabric has it. Off: locks in the main
  // region's host memory. (Only a timing model or real hardware shows a difference; the fabric says
  // where its lock space lives.)
  bool on_chip_locks = true;
  // Sherman 4.3: a local lock table in front of the global words. Off: every session polls the
  // global word.
  bool local_locks = true;
  // Sherman 4.3: local waiters are served in arrival order. Off: a free local lock goes to the
  // first session that tries it.
  bool wait_queue = true;
  // Sherman 4.3: a held global lock is passed to the next local waiter. Needs local_locks and
  // wait_queue.
  bool handover = true;
  // Beyond the paper: the holder applies waiting local operations of the same leaf in its own
  // write-back. Needs local_locks and wait_queue.
  bool operation_combining = true;
  // Beyond the paper: [CAS lock, READ node] is one chain. Off: the node is read after the lock is
  // held.
  bool lock_and_read = true;
  // Beyond the paper: the leaf image travels with a handed-over lock. Needs handover.
  bool handover_image = true;
  // Beyond the paper: a session that finds a global word taken waits before its next attempt,
  // longer each time up to a bound. Off: it tries again without a pause.
  bool lock_back_off = true;
  // Sherman 4.4: an entry-level update writes one line. Off: every write-back writes the whole
  // node.
  bool two_level_versions = true;
  // Beyond the paper: a get READs a header line and the few lines where its key can be, in trees
  // that are laid out for it (TreeOptions::narrow_reads), on fabrics that gain by it. Off: it READs
  // the leaf.
  bool narrow_reads = true;
  // If the tree is laid out for it, gets READ so on fabrics that gain nothing by it, too, and
  // always the fewest bytes first: for tests, and to measure.
  bool narrow_anywhere = false;
  // Beyond the paper, for saturated links: where gets READ so, a put, insert, update, replace or
  // upsert of one key does, too, under the leaf's lock, if no other write waits for the leaf. It
  // READs the leaf if that is not enough. Fewer bytes, and more chains for new keys. Needs
  // two_level_versions, lock_and_read and local_locks.
  bool narrow_writes = false;

  static Techniques Everything() { return {}; }
  static Techniques Sherman() {
    Techniques t;
    t.operation_combining = t.lock_and_read = t.handover_image = t.lock_back_off = false;
    t.narrow_reads = false;
    return t;
  }
  static Techniques FgPlus() {
    Techniques t = Sherman();
    t.command_combining = t.on_chip_locks = t.local_locks = t.wait_queue = t.handover = false;
    t.two_level_versions = false;
    return t;
  }
};

// Which RDMA device to use (fabric "verbs"). The client chooses what is not given.
struct RdmaOptions {
  std::string device = {};  // "": the first with an active port
  int port = 0;             // 0: the first active one
  int gid_index = -1;       // -1: RoCEv2 with an IPv4 address where there is one
  uint32_t mtu_bytes = 0;   // 0: the active one
  // What switches sort packets by: the traffic class (RoCE: DSCP in its upper six bits; 0 to 255),
  // and the service level (InfiniBand, and RoCE's priority; 0 to 15).
  int traffic_class = 0, service_level = 0;
  int pkey_index = 0;  // InfiniBand: index of the partition key in the port's table
};

struct ClientOptions {
  // Where the client finds the memory servers; the same as pando-memory's --registry: a directory
  // ("DIR" or "local:DIR"), or "memcached://HOST:PORT/CLUSTER". Needed to connect, and to find
  // servers that are added later.
  std::string registry = {};
  // Transport: "shm" (one host, no privileges) or "verbs" (RDMA).
  std::string fabric = "shm";
  RdmaOptions rdma = {};
  // File with the cluster's secret, as pando-memory has it; "": the cluster has none. Verbs only:
  // on shm the permissions of the memory servers' sockets decide who gets in.
  std::string secret_file = {};
  // How long Connect() waits until `memory_servers_min` servers answer, the one with the catalog
  // among them, milliseconds. Also the deadline of each call of a Client that asks a server,
  // NewSession() (where a server does not answer, a second at least), CreateTree(), DropTree() and
  // Servers() among them. (Who drops an owned tree that it has open waits, besides, until it serves
  // none of its keys any more.) Servers() and TreeStatus() may wait for other calls of the client;
  // then the servers have a second at least to answer. The client goes on without those that do not
  // answer (the log says which), and connects to them when they do.
  int64_t connect_timeout_ms = 5'000;
  int memory_servers_min = 1;

  Techniques techniques = {};

  // Bound on decoded internal nodes kept by this compute server, bytes. Upper levels are kept up to
  // half of it (64 KiB at least); level 1 gets the rest (Sherman 4.2.3). The default holds all
  // nodes of some 200 M records of 8/8.
  size_t index_cache_bytes = 64 << 20;
  // Bound on what this compute server remembers of where values in cells are
  // (TreeOptions::inline_value_bytes_max), bytes: some 26 per value. If the place of a value is
  // remembered and has not changed, a get is one round trip; if it has changed, the READ was in
  // vain. The default is for 1.3 M values; memory is allocated as needed. 0: none.
  size_t value_places_bytes = 32 << 20;
  // Coroutines a session may run at once; further operations wait in a queue. Fewer where the
  // sessions of this process have half of its mappings already (vm.max_map_count; two each).
  int coroutines_per_session = 64;
  // Handovers in a row before a lock is given up to other compute servers (rule L6).
  int handover_max = 32;
  // Operations that one write-back may carry (rule U2's budget).
  int combine_max = 64;
  // Default deadline of an operation, milliseconds. OperationOptions can shorten or lengthen it.
  // Over verbs an operation whose queue pair breaks under a lock may take up to fifteen seconds
  // longer: it gives the lock back first. If that fails, the client leaves the cluster
  // (Client::fenced()). An owner's operation may take as long if its queue pair breaks while it
  // writes to the redo log, as a read does, too, that has found what was just written: it waits
  // until nothing of that is in flight.
  int64_t operation_timeout_ms = 10'000;
  // --- Owned trees (TreeOptions::Mode): a client that has one open may own ranges of it. True: it
  // joins the owners at Connect(), not only when an operation needs a key that has no owner.
  bool owner = false;
  // Memory for records of all owned trees, bytes. The hotter records stay in it. At least 64 KiB.
  size_t hot_bytes = 64 << 20;
  // How much of hot_bytes may hold writes that are not in their leaves yet, percent, 1..90. The
  // more it is, the more of them share the way to a leaf, and the fewer records that are only read
  // stay in memory. With a log that is short it is less: at most half of log_bytes.
  int dirty_percent = 50;
  // Size of the redo log, bytes, on a memory server, which then keeps room for one more. The client
  // holds it from when it joins the owners. At least 64 KiB. Smaller, with a warning, if there is
  // no room now; ResourceExhausted: no memory server is that large.
  uint64_t log_bytes = 16 << 20;
  // Balance load, measured in operations a second, within seconds: this client gives ranges of keys
  // to owners that have less to do (and have the tree open), and gets ranges from owners that have
  // more. Off: it keeps the ranges that it claimed, and gets only those that a leaving client gives
  // away (Client::Leave()).
  bool spread_ranges = true;
  // Where this client answers other compute servers that need its keys: on shm the path of a
  // socket, on verbs HOST:PORT, or :PORT for every address of this host. "": the library chooses an
  // address. It publishes one that other hosts can reach.
  std::string service_address = {};
  // Threads that execute what other compute servers ask of this one, 1..64, each with a session of
  // its own. All requests of one asking client are executed by one of them, so more threads than
  // there are other compute servers gain nothing.
  int service_threads = 1;
  // Threads that bring writes from memory and log to their leaves, 1..16, each with a session of
  // its own; one of them has the other work of an owner as well. One brings one to three million
  // records a second to leaves; beyond that writers wait for it.
  int flush_threads = 1;
  // Ranges that this client has of each owned tree that it owns keys of and that is in use, 1..64:
  // it divides its busiest ones until it has so many. Each has a mutex, which an operation holds
  // for a fraction of a microsecond. As many as the client has threads is plenty. 1: no more than
  // balancing needs.
  int ranges_min = 1;

  // Where nobody has written to a range of keys for so long, milliseconds, other compute servers
  // that read it get its leaves on loan, for 4 ms at a time, and need not ask its owner for each
  // key. The first write after that waits for up to 5 ms, also one that turns out to have no
  // effect. If it comes soon after, the range has to be quiet for longer the next time. -1: never,
  // as where compute servers are virtual machines that are paused with their clocks; 0: whenever
  // all of a range is in its leaves; at most a day.
  int64_t lend_after_ms = 250;

  // Seed of back-off and placement decisions; 0: from the fabric.
  uint64_t seed = 0;
};

struct TreeOptions {
  // Who reads and writes the tree's leaves. Fixed at creation.
  enum class Mode : uint8_t {
    // Every compute server; each operation goes to the leaf.
    kShared,
    // The owner of the key, one compute server at a time: it keeps hot records in its own memory
    // (2-Tree, CIDR'23), acknowledges a write when it is in its redo log in remote memory, and
    // later writes many at once to a leaf (as a Bε-tree does).
    // Keys of at most 240 bytes.
    kOwned,
  };
  // Fixed at creation. 1..255 and 0..65,536 bytes.
  uint32_t key_bytes_max = 8;
  uint32_t value_bytes_max = 8;
  // Node size, bytes; 0: derived (1 KiB for 8/8, at least 32 slots a leaf).
  uint32_t node_bytes = 0;
  Mode mode = Mode::kShared;
  // Owned trees only. An owner acknowledges an erase when it is in its log; the erased entry stays
  // in its leaf until the message gets there. This bounds that time, milliseconds (as in Lethe,
  // SIGMOD'20), as long as the owner lives and reaches the leaf and its own log; if it dies, the
  // entry goes when another client takes over its keys. 10 or more; 0: no bound. The shorter it is,
  // the fewer erases share the write of a leaf. Fixed at creation.
  uint32_t delete_persistence_ms = 0;
  // Fixed at creation. Places a leaf's keys so that a get READs some 300 bytes instead of 1,024
  // (8/8), for NICs that are limited by bytes. Off by default: compute/index/README.md says what it
  // costs and gains. Releases without it cannot open such a tree.
  bool narrow_reads = false;
  // Longer values have memory of their own outside the leaves: a get takes two round trips
  // (one where ClientOptions::value_places_bytes helps), a write one more than others.
  // Bytes, 1..254; 0: all values are in their leaves up to a value_bytes_max of 255, and above that
  // those of up to 20 bytes, which take no more room there than what stands for the others. Fixed
  // at creation. Releases without it cannot open such a tree.
  uint32_t inline_value_bytes_max = 0;
};

// The cost of one operation. A combined operation's round trips are counted for the operation that
// executed it.
struct OperationCost {
  uint32_t round_trips = 0;
  uint32_t verbs = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  // To and from owners of keys, on other compute servers: a request and its answer are two. Others
  // may have shared them.
  uint32_t messages = 0;

  OperationCost& operator+=(const OperationCost& other) {
    round_trips += other.round_trips;
    verbs += other.verbs;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    messages += other.messages;
    return *this;
  }
};

struct OperationOptions {
  // For the whole call, however many keys it has, milliseconds. 0:
  // ClientOptions::operation_timeout_ms. Negative: InvalidArgument.
  int64_t timeout_ms = 0;
  OperationCost* cost = nullptr;  // filled in (added to) when given
};

}  // namespace pando
