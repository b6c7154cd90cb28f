// pando ranges, pando members: who owns what of owned trees.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"

namespace pando::tool {
namespace {

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

}  // namespace pando::tool
