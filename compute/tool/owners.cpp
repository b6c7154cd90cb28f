// pando ranges, members, flush, recover: who owns what of owned trees, and what has yet to be
// brought to their leaves.
#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"
#include "pando/losses.h"

namespace pando::tool {
namespace {

constexpr std::chrono::milliseconds kLookAgain(100);

Json ToJson(const OwnerInfo& owner) {
  if (owner.nobody()) return nullptr;
  return {{"compute_server", owner.compute_server},
          {"incarnation", owner.incarnation},
          {"address", owner.address}};
}

std::string OwnerText(const OwnerInfo& owner) {
  if (owner.nobody()) return "nobody";
  return absl::StrCat(owner.compute_server, " (incarnation ", owner.incarnation, ")");
}

// A client that asks for keys of an ended owner takes over what that one has left, its log first.
absl::Status AskFor(Session* session, const Tree& tree, const RangeInfo& range) {
  std::vector<KeyValue> rows;
  return session->Scan(tree, range.low, 1, &rows);
}

// How many ranges belong to other compute servers than this command's.
absl::StatusOr<size_t> RangesOfOthers(Client* client, const Tree& tree) {
  const auto ranges = client->ListRanges(tree);
  if (!ranges.ok()) return ranges.status();
  return std::ranges::count_if(*ranges, [client](const RangeInfo& range) {
    return !range.owner.nobody() && range.owner.compute_server != client->compute_server_id();
  });
}

using MemberKey = std::pair<uint16_t, uint32_t>;
MemberKey IdentityOf(const OwnerInfo& owner) { return {owner.compute_server, owner.incarnation}; }

absl::StatusOr<std::vector<MemberInfo>> ListEnded(Client* client) {
  auto members = client->ListMembers();
  if (members.ok()) std::erase_if(*members, [](const MemberInfo& member) { return !member.ended; });
  return members;
}

absl::Status PrintJson(const Json& json) { return Print(JsonText(json, /*in_lines=*/true)); }

Json ToJson(const RangeInfo& range) {
  Json json;
  AddBytes(&json, "from", range.low);
  if (range.high.empty()) {
    json["to"] = nullptr;
  } else {
    AddBytes(&json, "to", range.high);
  }
  json["owner"] = ToJson(range.owner);
  json["since"] = range.since == 0 ? Json() : Json(range.since);
  json["operations_per_s"] = range.is_known ? Json(range.operations_per_s) : Json();
  json["dirty_records"] = range.is_known ? Json(range.dirty_records) : Json();
  json["dirty_bytes"] = range.is_known ? Json(range.dirty_bytes) : Json();
  return json;
}

Json ToJson(const LossInfo& loss) {
  Json json;
  AddBytes(&json, "tree", loss.tree);
  AddBytes(&json, "from", loss.low);
  if (loss.high.empty()) {
    json["to"] = nullptr;
  } else {
    AddBytes(&json, "to", loss.high);
  }
  json["owner"] = ToJson(loss.owner);
  json["since"] = loss.since;
  json["why"] = loss.why;
  return json;
}

std::string LossText(const LossInfo& loss) {
  return absl::StrCat(
      "tree '", absl::CHexEscape(loss.tree), "', keys from '", absl::CHexEscape(loss.low), "' to ",
      loss.high.empty() ? "the end" : absl::StrCat("'", absl::CHexEscape(loss.high), "'"),
      ": acknowledged writes of compute server ", OwnerText(loss.owner), " may be lost, from its ",
      "message ", loss.since, " on (", loss.why, ")\n");
}

absl::Status PrintRecovered(const Settings& settings, size_t ended, const OwnedStats& owned,
                            const std::vector<LossInfo>& losses) {
  if (settings.json) {
    Json list = Json::array();
    for (const LossInfo& loss : losses) list.push_back(ToJson(loss));
    return PrintJson({{"ended", ended},
                      {"ranges", owned.adoptions},
                      {"writes", owned.adopted_messages},
                      {"may_have_lost", std::move(list)}});
  }
  // Others may have taken over as well.
  return Print(absl::StrCat("nothing is left of ", ended,
                            " compute servers that had ended; this command took over ",
                            owned.adoptions, " ranges, and brought ", owned.adopted_messages,
                            " writes that were in logs alone to their leaves\n"));
}

absl::Status AskForAll(Client* client, Session* session,
                       const std::vector<std::unique_ptr<Tree>>& trees,
                       const std::vector<MemberInfo>& members) {
  std::set<MemberKey> ended;
  for (const MemberInfo& member : members) ended.insert(IdentityOf(member.identity));
  // What is in the way of one is nothing to the others.
  absl::Status first;
  for (const auto& tree : trees) {
    const auto ranges = client->ListRanges(*tree);
    first.Update(ranges.status());
    if (!ranges.ok()) continue;
    for (const RangeInfo& range : *ranges) {
      if (ended.contains(IdentityOf(range.owner))) first.Update(AskFor(session, *tree, range));
    }
  }
  return first;
}

// What those have left who own nothing any more is looked for once a second.
absl::Status AwaitNothingLeft(const Settings& settings, Client* client) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(settings.timeout_ms);
  auto left = ListEnded(client);
  while (left.ok() && !left->empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookAgain);
    left = ListEnded(client);
  }
  if (!left.ok()) return left.status();
  if (left->empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("compute server ", OwnerText(left->front().identity), " has ended, and ",
                   "after --timeout_ms=", settings.timeout_ms,
                   " not all that it has left is taken over; 'pando members' shows it"));
}

}  // namespace

absl::Status Ranges(const Settings& settings, const Arguments&) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  const auto ranges = opened->client->ListRanges(*opened->tree);
  if (!ranges.ok()) return ranges.status();
  if (settings.json) {
    Json list = Json::array();
    for (const RangeInfo& range : *ranges) list.push_back(ToJson(range));
    Json json;
    AddBytes(&json, "tree", settings.tree);
    json["ranges"] = std::move(list);
    return PrintJson(json);
  }
  absl::Status status =
      Print(Column("owner", 28) + Column("keys", 28) + Column("operations/s", 14) +
            Column("dirty", 10) + Column("since", 12) + "address\n");
  const auto known = [](const RangeInfo& range, uint64_t number) {
    return range.is_known ? std::to_string(number) : "-";
  };
  for (const RangeInfo& range : *ranges) {
    if (!status.ok()) break;
    const std::string to = range.high.empty() ? "the end" : absl::CHexEscape(range.high);
    status = Print(Column(OwnerText(range.owner), 28) +
                   Column(absl::StrCat("'", absl::CHexEscape(range.low), "' to ", to), 28) +
                   Column(known(range, range.operations_per_s), 14) +
                   Column(known(range, range.dirty_records), 10) +
                   Column(range.since == 0 ? "-" : std::to_string(range.since), 12) +
                   range.owner.address + "\n");
  }
  return status;
}

absl::Status Members(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  auto members = (*client)->ListMembers();
  if (!members.ok()) return members.status();
  if (settings.json) {
    Json list = Json::array();
    for (const MemberInfo& member : *members) {
      list.push_back({{"compute_server", member.identity.compute_server},
                      {"incarnation", member.identity.incarnation},
                      {"address", member.identity.address},
                      {"ended", member.ended},
                      {"recovering", member.recovering},
                      {"ranges", member.ranges},
                      {"log_server", member.log_server == 0 ? Json() : Json(member.log_server)},
                      {"log_bytes", member.log_bytes}});
    }
    return PrintJson({{"members", std::move(list)}});
  }
  if (members->empty()) return Print("no compute server owns keys\n");
  absl::Status status = Print(Column("compute server", 28) + Column("state", 16) +
                              Column("ranges", 8) + Column("log", 26) + "address\n");
  for (const MemberInfo& member : *members) {
    if (!status.ok()) break;
    const std::string log =
        member.log_server == 0
            ? "none"
            : absl::StrCat(member.log_bytes >> 10, " KiB on memory server ", member.log_server);
    const char* const state = member.recovering ? "being recovered"
                              : member.ended    ? "ended"
                                                : "at work";
    status = Print(Column(OwnerText(member.identity), 28) + Column(state, 16) +
                   Column(std::to_string(member.ranges), 8) + Column(log, 26) +
                   member.identity.address + "\n");
  }
  return status;
}

absl::Status Flush(const Settings& settings, const Arguments&) {
  const auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  if (opened->tree->mode() == TreeOptions::Mode::kShared) {
    return Print("a shared tree has nothing to flush: its writes go to their leaves at once\n");
  }
  const auto ranges = opened->client->ListRanges(*opened->tree);
  if (!ranges.ok()) return ranges.status();
  for (const RangeInfo& range : *ranges) {
    const absl::Status asked = AskFor(opened->session.get(), *opened->tree, range);
    if (!asked.ok()) return asked;
  }
  const absl::Status flushed = opened->session->Flush(*opened->tree);
  if (!flushed.ok()) return flushed;
  const auto others = RangesOfOthers(opened->client.get(), *opened->tree);
  if (!others.ok()) return others.status();
  if (*others > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        *others, " of ", ranges->size(), " ranges of tree '", settings.tree,
        "' belong to compute servers that are at work: these flush when they need to, when their "
        "program asks (Session::Flush()), and when they end"));
  }
  const OwnedStats owned = opened->client->Stats().owned;
  return Print(absl::StrCat("everything is in its leaf; ", owned.flushed + owned.adopted_messages,
                            " writes were in logs alone\n"));
}

absl::Status Recover(const Settings& settings, const Arguments&) {
  const auto client = Connect(settings, /*owner=*/true);
  if (!client.ok()) return client.status();
  const auto session = (*client)->NewSession();
  if (!session.ok()) return session.status();
  const auto before = ListEnded(client->get());
  if (!before.ok()) return before.status();
  if (before->empty()) {
    if (settings.json) return PrintRecovered(settings, 0, {}, {});
    return Print("no compute server that has ended has left anything\n");
  }
  const auto listed = (*client)->ListTrees();
  if (!listed.ok()) return listed.status();
  // All of them stay open: who recovers a compute server takes over its ranges of all trees.
  std::vector<std::unique_ptr<Tree>> trees;
  absl::Status not_opened;
  for (const TreeInfo& info : *listed) {
    if (info.mode != TreeOptions::Mode::kOwned) continue;
    auto tree = (*client)->OpenTree(info.name);
    if (absl::IsNotFound(tree.status())) continue;  // dropped meanwhile
    // Its nodes are gone, perhaps: others' are not.
    not_opened.Update(tree.status());
    if (tree.ok()) trees.push_back(*std::move(tree));
  }
  std::vector<LossInfo> losses;
  absl::Status taken;
  if (settings.accept_loss) {
    taken = AcceptLoss(**client,
                       {.servers_dead = settings.servers_dead, .timeout_ms = settings.timeout_ms},
                       &losses);
  } else {
    taken = AskForAll(client->get(), session->get(), trees, *before);
  }
  taken.Update(not_opened);
  // What has been given up is said whatever comes of the rest.
  if (!settings.json) {
    for (const LossInfo& loss : losses) taken.Update(Print(LossText(loss)));
  }
  if (taken.ok()) taken = AwaitNothingLeft(settings, client->get());
  for (const auto& tree : trees) taken.Update((*session)->Flush(*tree));
  const absl::Status printed =
      taken.ok() || settings.json
          ? PrintRecovered(settings, before->size(), (*client)->Stats().owned, losses)
          : absl::OkStatus();
  return taken.ok() ? printed : taken;
}

}  // namespace pando::tool
