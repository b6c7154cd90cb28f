#include "compute/check/node_look.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {

std::string DescribeNode(const Reference& node) {
  return absl::StrCat("node ", node.address.server(), ":", node.address.offset(), " life ",
                      node.life);
}

std::string DescribeBound(std::string_view key) {
  return key.empty() ? "infinity"
                     : absl::BytesToHexString(absl::string_view(key.data(), key.size()));
}

NodeLooker::NodeLooker(const CatalogEntry& entry, const NodeLayout& layout, bool crc,
                       const ReadRemote& read)
    : entry_(entry),
      layout_(layout),
      crc_(crc),
      read_(read),
      image_(static_cast<std::byte*>(
          ::operator new (layout.node_bytes(), std::align_val_t{kLineBytes}))) {}

absl::Status NodeLooker::Read(RemoteAddress from, size_t bytes) {
  absl::Status status = read_(from, {image_.get(), bytes});
  // FailedPrecondition: the checker itself was cut off.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status)) {
    unreadable_ = status;
  }
  return status;
}

absl::StatusOr<RootRecord> NodeLooker::ReadRoot() {
  PANDO_RETURN_IF_ERROR(Annotate(Read(entry_.root_record, kLineBytes), "root record"));
  RootRecord record;
  if (DecodeRootRecord(image_.get(), entry_.tree_id, crc_, &record) != RootVerdict::kAccepted) {
    return absl::DataLossError("the root record is inconsistent, or another tree's");
  }
  return record;
}

NodeLook NodeLooker::Look(int level, const Reference& node, std::string_view key) {
  NodeLook look;
  look.node = node;
  if (node.address.offset() % kLineBytes != 0) {
    look.problem = "is not aligned";
    return look;
  }
  const absl::Status read = Read(node.address, layout_.node_bytes());
  if (!read.ok()) {
    look.problem = absl::StrCat("cannot be read: ", read.ToString());
    return look;
  }
  const NodeExpectation expectation = {entry_.tree_id, static_cast<uint8_t>(level), node.life, key};
  switch (Classify(image_.get(), layout_, expectation, crc_)) {
    case NodeVerdict::kAccepted:
      Decode(level, &look);
      break;
    case NodeVerdict::kTorn:
      look.verdict = NodeLook::Verdict::kTorn;
      look.problem = "is inconsistent";
      break;
    case NodeVerdict::kStale:
      look.problem = "is not the node meant";
      break;
    case NodeVerdict::kMovedRight:
      look.verdict = NodeLook::Verdict::kMovedRight;
      look.header = ReadHeader(image_.get(), layout_);
      [[fallthrough]];
    case NodeVerdict::kMovedLeft:
      look.problem = "does not cover its left neighbour's high fence";
      break;
  }
  return look;
}

void NodeLooker::Decode(int level, NodeLook* look) const {
  if (level > 0) {
    InternalNode decoded;
    const absl::Status status = DecodeInternal(image_.get(), layout_, &decoded);
    if (!status.ok()) {
      look->problem = status.ToString();
      return;
    }
    look->header = std::move(decoded.header);
    // The leftmost child's separator is in the parent's parent, or it is the first of its level.
    look->children.push_back({look->header.low, look->header.leftmost});
    for (Separator& entry : decoded.entries) look->children.push_back(std::move(entry));
  } else {
    look->header = ReadHeader(image_.get(), layout_);
    if (!ReadLeafEntries(image_.get(), layout_, &look->entries)) {  // rule V1
      look->verdict = NodeLook::Verdict::kTorn;
      look->problem = "has a key twice";
      return;
    }
    if (HasSlotOutOfFence(image_.get(), layout_)) {  // rule F5
      look->verdict = NodeLook::Verdict::kTorn;
      look->problem = "has a slot whose key is outside its fences";
      return;
    }
    if (!SpillsAreFlagged(image_.get(), layout_)) {  // rule N1
      look->problem = "has a key outside its window, and its home has no flag";
      return;
    }
    std::sort(look->entries.begin(), look->entries.end(),
              [](const LeafEntry& a, const LeafEntry& b) { return a.key < b.key; });
  }
  look->verdict = NodeLook::Verdict::kFine;
}

NodeLook NodeLooker::LookRight(int level, Reference node, std::string_view key) {
  NodeLook look = Look(level, node, key);
  for (int moves = 0; look.verdict == NodeLook::Verdict::kMovedRight && moves < kMovesRightMax;
       ++moves) {
    look = Look(level, look.header.right, key);
  }
  return look;
}

absl::StatusOr<NodePlace> NodeLooker::FindPlace(int level, std::string_view key) {
  PANDO_ASSIGN_OR_RETURN(const RootRecord record, ReadRoot());
  if (record.level < level) {
    return absl::NotFoundError(absl::StrCat("the tree has no level ", level));
  }
  NodePlace place = {record.root, ""};
  for (int above = record.level; above > level; --above) {
    NodeLook look = LookRight(above, place.node, key);
    if (!look.fine()) {
      return absl::DataLossError(absl::StrCat(DescribeNode(look.node), " ", look.problem));
    }
    const auto behind =
        std::upper_bound(look.children.begin(), look.children.end(), key,
                         [](std::string_view k, const Separator& child) { return k < child.key; });
    // The first child starts at the low fence, which is at most the key.
    const Separator& child = *std::prev(behind);
    place = {child.child, child.key};
  }
  return place;
}

NodeLook NodeLooker::FindNode(int level, std::string_view key) {
  const absl::StatusOr<NodePlace> place = FindPlace(level, key);
  if (place.ok()) return LookRight(level, place->node, key);
  NodeLook look;
  look.problem = place.status().ToString();
  return look;
}

}  // namespace pando
