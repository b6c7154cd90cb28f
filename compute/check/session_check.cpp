#include "compute/check/session_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_glance.h"
#include "compute/check/node_accounting.h"
#include "compute/check/tree_check.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {

constexpr int64_t kFirstPauseNs = 50 * kMicrosecondNs;
constexpr int64_t kLastPauseNs = 50 * kMillisecondNs;
constexpr int64_t kLockPauseNs = 5 * kMillisecondNs;
constexpr int kDoublingsMax = 10;
constexpr int kPassesMax = 4;  // over a live tree whose nodes do not seem to add up
constexpr uint32_t kLockReadBytes = 32 << 10;

class SessionCheck {
 public:
  SessionCheck(OperationContext& context, TreeContext& tree, const CheckServers& servers,
               const CheckOptions& options)
      : context_(context), tree_(tree), servers_(servers), options_(options) {}

  absl::StatusOr<CheckReport> Run();

 private:
  using WordSet = std::set<uint32_t>;

  absl::Status Read(ServerId server, MemorySpace space, uint64_t offset, std::span<std::byte> into);
  bool LookAgain(int tries);
  TreeCheckResult Walk();
  absl::StatusOr<AccountingResult> Account(const std::vector<Reference>& nodes);
  // The node was merged away: a client is about to give it back, or a sweep is.
  absl::StatusOr<bool> GoesBack(RemoteAddress node);
  // `walked` is replaced where the tree has to be walked again.
  absl::Status CheckAccounting(TreeCheckResult* walked);
  absl::Status CheckLocks(const std::vector<Reference>& nodes);
  absl::Status ReadLocks(ServerId server, std::vector<uint64_t>* words);
  // DeadlineExceeded: one of the nodes is locked, and the lock's holder, who lives, does not go on.
  absl::Status LookForStoppedWriter(const std::vector<Reference>& nodes);
  // Words of `indices` that are no lock words, or held, go to `held`.
  absl::Status CheckServerLocks(ServerId server, WordSet indices);

  OperationContext& context_;
  TreeContext& tree_;
  const CheckServers& servers_;
  const CheckOptions& options_;
  int64_t first_look_ns_ = 0;
  CheckReport report_;
};

absl::Status SessionCheck::Read(ServerId server, MemorySpace space, uint64_t offset,
                                std::span<std::byte> into) {
  if (tree_.environment.hocl.Words(server) == 0 && !context_.AwaitServer(server)) {
    return absl::NotFoundError(absl::StrCat("there is no memory server ", server));
  }
  const auto bytes = static_cast<uint32_t>(into.size());
  PANDO_ASSIGN_OR_RETURN(const BufferLease buffer, context_.session.buffers().Lease(bytes));
  ChainLease chain(&context_.session.buffers());
  for (int tries = 0;; ++tries) {
    chain->Reset(server);
    chain->Read(space, offset, buffer.buffer());
    const absl::Status read = context_.Await(chain.get());
    if (!read.ok() && !absl::IsAborted(read)) return read;
    // A lock word is whole by itself, however long its READ took (rule F2 is about nodes).
    if (read.ok() && (space == MemorySpace::kLocks || !ReadTookTooLong(tree_, *chain))) break;
    if (context_.expired()) return context_.DeadlineError("checking the tree");
    context_.BackOff(1);
  }
  std::memcpy(into.data(), buffer.data(), bytes);
  return absl::OkStatus();
}

bool SessionCheck::LookAgain(int tries) {
  const int64_t now_ns = context_.session.NowNs();
  if (tries == 0) first_look_ns_ = now_ns;
  if ((now_ns - first_look_ns_) / kMillisecondNs >= options_.recheck_ms) return false;
  const int64_t pause_ns = std::min(kFirstPauseNs << std::min(tries, kDoublingsMax), kLastPauseNs);
  context_.session.scheduler().SleepUntil(now_ns + pause_ns);
  return true;
}

absl::Status SessionCheck::ReadLocks(ServerId server, std::vector<uint64_t>* words) {
  words->resize(tree_.environment.hocl.Words(server));
  const std::span<std::byte> table = std::as_writable_bytes(std::span(*words));
  for (size_t at = 0; at < table.size(); at += kLockReadBytes) {
    const size_t bytes = std::min<size_t>(kLockReadBytes, table.size() - at);
    PANDO_RETURN_IF_ERROR(Read(server, MemorySpace::kLocks, at, table.subspan(at, bytes)));
  }
  return absl::OkStatus();
}

absl::Status SessionCheck::CheckServerLocks(ServerId server, WordSet indices) {
  std::vector<uint64_t> words, first;
  for (int tries = 0;; ++tries) {
    PANDO_RETURN_IF_ERROR(ReadLocks(server, &words));
    if (tries == 0) first = words;
    std::erase_if(indices, [&](uint32_t i) { return words[i] == LockWord::kFree; });
    if (tries == 0) report_.locks_held += indices.size();
    // What is held by others in turn is not left behind.
    std::erase_if(indices, [&](uint32_t i) { return words[i] != first[i]; });
    const bool any_bad = std::any_of(indices.begin(), indices.end(), [&](uint32_t i) {
      return options_.quiet_tree || !LockWord::IsValid(words[i]);
    });
    if (!any_bad) return absl::OkStatus();
    if (!LookAgain(tries)) break;
  }
  for (const uint32_t i : indices) {
    if (report_.problems.size() >= options_.problems_max) break;
    if (!LockWord::IsValid(words[i])) {
      report_.problems.push_back(absl::StrCat("lock word ", i, " of server ", server,
                                              " is no lock word: ", absl::Hex(words[i])));
    } else if (options_.quiet_tree) {
      report_.problems.push_back(DescribeLock(server, i, words[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status SessionCheck::CheckLocks(const std::vector<Reference>& nodes) {
  std::map<ServerId, WordSet> words;
  words[tree_.entry.root_record.server()].insert(tree_.entry.root_lock_index);
  for (const Reference& node : nodes) {
    const absl::StatusOr<LockTarget> lock = tree_.NodeLock(context_, node);
    if (lock.ok()) words[lock->server].insert(lock->word);
  }
  for (auto& [server, indices] : words) {
    PANDO_RETURN_IF_ERROR(CheckServerLocks(server, std::move(indices)));
  }
  return absl::OkStatus();
}

absl::Status SessionCheck::LookForStoppedWriter(const std::vector<Reference>& nodes) {
  constexpr int kLooks = 10;
  for (const Reference& node : nodes) {
    const absl::StatusOr<LockTarget> lock = tree_.NodeLock(node);
    if (!lock.ok()) continue;
    uint64_t word = LockWord::kFree, first = LockWord::kFree;
    for (int look = 0; look < kLooks; ++look) {
      PANDO_RETURN_IF_ERROR(Read(lock->server, MemorySpace::kLocks, uint64_t{lock->word} * 8,
                                 std::as_writable_bytes(std::span(&word, 1))));
      if (look == 0) first = word;
      if (word == LockWord::kFree || word != first || !LockWord::IsValid(word)) break;
      context_.session.scheduler().SleepUntil(context_.session.NowNs() + kLockPauseNs);
    }
    if (word == LockWord::kFree || word != first || !LockWord::IsValid(word)) continue;
    PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                           context_.session.buffers().Lease(tree_.layout.node_bytes()));
    PANDO_ASSIGN_OR_RETURN(const bool abandoned,
                           tree_.environment.hocl.IsAbandoned(context_, *lock, image.buffer()));
    if (abandoned) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        DescribeNode(node), " looks wrong, but ", DescribeLock(lock->server, lock->word, word),
        ", which does not go on: if it is stopped, check again when it goes on"));
  }
  return absl::OkStatus();
}

TreeCheckResult SessionCheck::Walk() {
  TreeCheckOptions options = {
      .crc = tree_.environment.crc, .nodes_max = UINT64_MAX, .problems_max = options_.problems_max};
  if (!options_.quiet_tree) options.look_again = [this](int tries) { return LookAgain(tries); };
  return CheckTree(tree_.entry, options, [this](auto from, auto into) {
    if (context_.expired()) return context_.DeadlineError("checking the tree");
    return Read(from.server(), MemorySpace::kMain, from.offset(), into);
  });
}

absl::StatusOr<AccountingResult> SessionCheck::Account(const std::vector<Reference>& nodes) {
  return AccountForNodes(
      servers_.ids, tree_.layout.node_bytes(), nodes,
      [this](ServerId server, uint64_t after_offset) -> absl::StatusOr<NodeList> {
        PANDO_ASSIGN_OR_RETURN(const std::string body,
                               servers_.channel.Call(context_, server, ControlOpcode::kListNodes,
                                                     EncodeNodeQuery({.tree_id = tree_.id(),
                                                                      .after_offset = after_offset,
                                                                      .max = kListedNodesMax})));
        return ParseNodeList(body);
      });
}

absl::StatusOr<bool> SessionCheck::GoesBack(RemoteAddress node) {
  alignas(kLineBytes) std::byte line[kLineBytes];
  PANDO_RETURN_IF_ERROR(Read(node.server(), MemorySpace::kMain, node.offset(), line));
  const NodeGlance glance = GlanceAtNode(line);
  return glance.is_node && glance.tree_id == tree_.id() && glance.state == NodeState::kDead;
}

absl::Status SessionCheck::CheckAccounting(TreeCheckResult* walked) {
  PANDO_ASSIGN_OR_RETURN(AccountingResult result, Account(walked->nodes));
  // On a live tree nodes come and go between the walk and the lists: only a node that stays a
  // suspect is a problem.
  for (int passes = 1; !options_.quiet_tree && !result.suspects.empty() && passes < kPassesMax;
       ++passes) {
    context_.session.scheduler().SleepUntil(context_.session.NowNs() + kLastPauseNs);
    TreeCheckResult again = Walk();
    PANDO_RETURN_IF_ERROR(again.unreadable);
    if (!again.problems.empty()) {
      // As of the first walk. They leave nodes unreached: no suspect can be believed any more.
      PANDO_RETURN_IF_ERROR(LookForStoppedWriter(again.doubtful));
      report_.problems = std::move(again.problems);
      report_.looked_again += again.looked_again;
      result.suspects.clear();
      break;
    }
    *walked = std::move(again);
    const AccountingResult before = std::move(result);
    PANDO_ASSIGN_OR_RETURN(result, Account(walked->nodes));
    std::erase_if(result.suspects, [&](const auto& suspect) {
      const auto same = before.suspects.find(suspect.first);
      return same == before.suspects.end() || same->second != suspect.second;
    });
  }
  report_.nodes = result.counts;
  for (auto& [address, problem] : result.suspects) {
    if (report_.problems.size() >= options_.problems_max) break;
    PANDO_ASSIGN_OR_RETURN(const bool goes_back, GoesBack(RemoteAddress::FromRaw(address)));
    if (goes_back) {
      ++report_.nodes.orphans;
    } else {
      report_.problems.push_back(std::move(problem));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckReport> SessionCheck::Run() {
  // What went with a memory server is no damage of what is left, and nobody can check it.
  PANDO_RETURN_IF_ERROR(tree_.CheckServers(context_, /*waits=*/true));
  TreeCheckResult walked = Walk();
  PANDO_RETURN_IF_ERROR(walked.unreadable);
  if (!options_.quiet_tree) PANDO_RETURN_IF_ERROR(LookForStoppedWriter(walked.doubtful));
  report_.problems = std::move(walked.problems);
  report_.looked_again = walked.looked_again;
  // Behind damage there are nodes that were not reached: they would all be called lost.
  if (report_.ok()) PANDO_RETURN_IF_ERROR(CheckAccounting(&walked));
  report_.nodes_per_level.assign(walked.nodes_per_level.begin(), walked.nodes_per_level.end());
  report_.keys = walked.keys;
  report_.key_bytes = walked.key_bytes;
  report_.value_bytes = walked.value_bytes;
  report_.nodes_bytes = uint64_t{tree_.layout.node_bytes()} * walked.nodes.size();
  report_.missing_separators = walked.missing_separators;
  PANDO_RETURN_IF_ERROR(CheckLocks(walked.nodes));
  PANDO_RETURN_IF_ERROR(tree_.CheckServers(context_, /*waits=*/true));
  return std::move(report_);
}

}  // namespace

absl::StatusOr<CheckReport> CheckOpenTree(OperationContext& context, TreeContext& tree,
                                          const CheckServers& servers,
                                          const CheckOptions& options) {
  return SessionCheck(context, tree, servers, options).Run();
}

}  // namespace pando
