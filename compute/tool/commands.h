// The commands of `pando`, one function each. They print results to standard output and return what
// went wrong; main.cpp turns that into a message and an exit code. Built on the public interface
// only, but for the doctor, and for what is announced (announced_servers.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compute/tool/output.h"
#include "compute/tool/progress.h"
#include "pando/client.h"

namespace pando::tool {

struct Settings {
  std::string registry;
  std::string fabric = "shm";
  RdmaOptions rdma;
  std::string secret_file;  // "": none
  std::string tree;
  int64_t timeout_ms = 10'000;  // of an operation
  uint32_t key_bytes = 0;       // load, create; 0: derived, or the default
  uint32_t value_bytes = 0;
  bool value_bytes_given = false;
  uint32_t inline_value_bytes = 0;  // load, create; 0: the default
  // load, create: what is made; not given: shared, or as the tree that there is.
  TreeOptions::Mode mode = TreeOptions::Mode::kShared;
  bool mode_given = false;
  uint32_t delete_persistence_ms = 0;              // create
  bool narrow_reads = TreeOptions().narrow_reads;  // load, create
  bool narrow_reads_given = false;
  int sessions = 0;  // load; 0: one a CPU, at most 8
  bool bulk = true;  // load: fill an empty tree from sorted keys instead of putting one by one
  std::string from, to, prefix;  // scan; erase: the first two; restore: the first one
  bool from_given = false, to_given = false, reverse = false;
  uint64_t limit = 0;
  bool values = false;
  bool tree_given = false;  // check: all trees unless one was named; drop
  bool quiet_tree = false;
  bool json = false;
  bool hex = false;          // get, put, delete: arguments are hexadecimal digits
  std::string format;        // load, scan; "": the command's own
  double watch_seconds = 0;  // stats; 0: once
  bool resume = false;       // dump: go on with a file that ended half way
  uint64_t rate = 0;         // dump, restore: bytes a second; 0: as fast as it goes
  ShowProgress progress = ShowProgress::kOnTerminal;
  std::string man_directory;           // help: write the manual pages there; "": print the help
  bool accept_loss = false;            // recover: also where a log is lost
  std::vector<uint16_t> servers_dead;  // recover: memory servers, as the operator says
  bool litmus = false;  // doctor: the litmus tests of an RDMA device instead of everything else
  int64_t litmus_seconds = 2;  // of each of them
};
using Arguments = std::vector<std::string>;

absl::Status Load(const Settings& settings, const Arguments& arguments);    // FILE
absl::Status Get(const Settings& settings, const Arguments& arguments);     // KEY
absl::Status Put(const Settings& settings, const Arguments& arguments);     // KEY VALUE
absl::Status Delete(const Settings& settings, const Arguments& arguments);  // KEY
absl::Status EraseRange(const Settings& settings, const Arguments& arguments);
absl::Status Scan(const Settings& settings, const Arguments& arguments);
absl::Status Dump(const Settings& settings, const Arguments& arguments);     // FILE
absl::Status Restore(const Settings& settings, const Arguments& arguments);  // FILE
absl::Status Create(const Settings& settings, const Arguments& arguments);
absl::Status Drop(const Settings& settings, const Arguments& arguments);  // [NAME]
absl::Status Trees(const Settings& settings, const Arguments& arguments);
absl::Status Count(const Settings& settings, const Arguments& arguments);
absl::Status Stats(const Settings& settings, const Arguments& arguments);
// Of one tree, or of all. DataLoss if something is wrong with a tree; other errors say why it could
// not be checked (of all: the first one that could not).
absl::Status Check(const Settings& settings, const Arguments& arguments);
// Works without any server; FailedPrecondition if it found something that has to be fixed. With
// `litmus`: NotFound where there is no RDMA device.
absl::Status Doctor(const Settings& settings, const Arguments& arguments);

// Of one owned tree; of all compute servers that own keys.
absl::Status Ranges(const Settings& settings, const Arguments& arguments);
absl::Status Members(const Settings& settings, const Arguments& arguments);
// Of one owned tree. FailedPrecondition: compute servers that live own keys, and they alone can.
absl::Status Flush(const Settings& settings, const Arguments& arguments);
// Of all owned trees. Unavailable: what somebody has left could not be taken over in time.
absl::Status Recover(const Settings& settings, const Arguments& arguments);

// Never a status that says of a key or tree that it is not there.
// `owner`: as ClientOptions::owner.
absl::StatusOr<std::unique_ptr<Client>> Connect(const Settings& settings, bool owner = false);
// A connection with one tree and one session: what most commands work on.
struct OpenedTree {
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;
};
absl::StatusOr<OpenedTree> Open(const Settings& settings);
// How many leaves are READ at once by a command that goes through a tree.
int LeavesAtOnce(const Tree& tree);
// Memory of dropped trees is free again after this long: a full server may not stay full.
inline constexpr std::chrono::milliseconds kRestOfDroppedTrees(1200);
// Whether the exception that is being handled says that this process gets no more memory or
// threads.
bool IsShortage();
inline constexpr char kShortageText[] =
    "this machine, or a limit such as those of ulimit -v and -u, gives this process no more memory "
    "or threads";
// What `run` returns; ResourceExhausted where it throws for such a shortage.
absl::Status OrShortage(absl::FunctionRef<absl::Status()> run);
// "shared", "owned".
std::string ModeText(TreeOptions::Mode mode);

}  // namespace pando::tool
