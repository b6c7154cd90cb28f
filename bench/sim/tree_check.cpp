#include "bench/sim/tree_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"
#include "common/wire/root_record.h"

namespace pando {
namespace {

// A child as its parent refers to it.
struct ChildLink {
  std::string low;
  Reference child;
};

struct FreeAligned {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kLineBytes}); }
};
using Image = std::unique_ptr<std::byte, FreeAligned>;

Image NewImage(size_t bytes) {
  return Image(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLineBytes})));
}

std::string Describe(const Reference& node) {
  return absl::StrCat("node ", node.address.server(), ":", node.address.offset(), " life ",
                      node.life);
}

std::string Bound(std::string_view key) { return key.empty() ? "infinity" : history::ToHex(key); }

class Walk {
 public:
  Walk(const CatalogEntry& entry, bool crc, const ReadRemote& read, size_t nodes_max)
      : entry_(entry), crc_(crc), read_(read), nodes_left_(nodes_max) {}

  TreeCheckResult Run();

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    if (result_.problems.size() < TreeCheckResult::kProblemsMax) {
      result_.problems.push_back(absl::StrCat(parts...));
    }
  }
  bool ReadRootRecord(RootRecord* record);
  // Walks a level from its leftmost node; `links`: what the level above refers to (null: the root
  // alone). False: the walk cannot go on. Leaves the links to the level below in `below`.
  bool WalkLevel(int level, const Reference& leftmost, std::vector<ChildLink>* links,
                 std::vector<ChildLink>* below);
  bool ReadAndClassify(int level, const Reference& node, std::string_view low);
  void TakeInternal(const Reference& node, std::vector<ChildLink>* below);
  void TakeLeaf(const Reference& node);
  // The parents' link to this node, if there is one; complains about links to nowhere before it.
  void MatchLink(const Reference& node, std::string_view low, const std::vector<ChildLink>& links,
                 size_t* next);

  const CatalogEntry& entry_;
  const bool crc_;
  const ReadRemote& read_;
  size_t nodes_left_;
  NodeLayout layout_;
  Image image_;
  std::set<uint64_t> seen_;
  TreeCheckResult result_;
};

TreeCheckResult Walk::Run() {
  const TreeShape& shape = entry_.shape;
  const auto layout =
      NodeLayout::Create(shape.key_bytes_max, shape.value_bytes_max, shape.node_bytes);
  if (!layout.ok()) {
    Problem("the catalog's shape is impossible: ", layout.status().ToString());
    return std::move(result_);
  }
  layout_ = *layout;
  image_ = NewImage(layout_.node_bytes());
  RootRecord record;
  if (!ReadRootRecord(&record)) return std::move(result_);
  result_.nodes_per_level.resize(record.level + 1u);
  Reference leftmost = record.root;
  std::vector<ChildLink> links = {{"", record.root}}, below;
  for (int level = record.level; level >= 0; --level) {
    below.clear();
    if (!WalkLevel(level, leftmost, &links, &below)) break;
    if (level > 0 && below.empty()) break;  // nothing above could be decoded
    if (level > 0) leftmost = below.front().child;
    links.swap(below);
  }
  return std::move(result_);
}

bool Walk::ReadRootRecord(RootRecord* record) {
  const Image line = NewImage(kLineBytes);
  const absl::Status status = read_(entry_.root_record, {line.get(), kLineBytes});
  if (!status.ok()) {
    Problem("root record: ", status.ToString());
    return false;
  }
  if (DecodeRootRecord(line.get(), entry_.tree_id, crc_, record) != RootVerdict::kAccepted) {
    Problem("the root record is inconsistent, or another tree's");
    return false;
  }
  return true;
}

bool Walk::ReadAndClassify(int level, const Reference& node, std::string_view low) {
  if (nodes_left_-- == 0) {
    Problem("more nodes than expected");
    nodes_left_ = 0;
    return false;
  }
  if (!seen_.insert(node.address.raw()).second) {
    Problem(Describe(node), " is met twice");
    return false;
  }
  if (node.address.offset() % kLineBytes != 0) {
    Problem(Describe(node), " is not aligned");
    return false;
  }
  const absl::Status status = read_(node.address, {image_.get(), layout_.node_bytes()});
  if (!status.ok()) {
    Problem(Describe(node), ": ", status.ToString());
    return false;
  }
  const NodeExpectation expectation = {entry_.tree_id, static_cast<uint8_t>(level), node.life, low};
  const NodeVerdict verdict = Classify(image_.get(), layout_, expectation, crc_);
  if (verdict == NodeVerdict::kAccepted) return true;
  const char* what = verdict == NodeVerdict::kTorn ? "is inconsistent"
                     : verdict == NodeVerdict::kStale
                         ? "is not the node meant"
                         : "does not cover its left neighbour's high fence";
  Problem("level ", level, ": ", Describe(node), " ", what, " (", Bound(low), ")");
  return false;
}

bool Walk::WalkLevel(int level, const Reference& leftmost, std::vector<ChildLink>* links,
                     std::vector<ChildLink>* below) {
  Reference node = leftmost;
  std::string low;
  size_t next_link = 0;
  while (true) {
    if (!ReadAndClassify(level, node, low)) return false;
    ++result_.nodes_per_level[static_cast<size_t>(level)];
    const NodeHeader header = ReadHeader(image_.get(), layout_);
    if (header.low != low) {
      Problem(Describe(node), ": low fence ", Bound(header.low),
              " is not its left neighbour's high fence ", Bound(low));
    }
    if (header.state != NodeState::kLive) Problem(Describe(node), " is not live");
    MatchLink(node, low, *links, &next_link);
    level == 0 ? TakeLeaf(node) : TakeInternal(node, below);
    if (header.high.empty() != header.right.is_null()) {
      Problem(Describe(node), ": high fence ", Bound(header.high), ", but ",
              header.right.is_null() ? "no" : "a", " right sibling");
    }
    if (header.right.is_null()) break;
    low = header.high;
    node = header.right;
  }
  for (; next_link < links->size(); ++next_link) {
    Problem("separator ", Bound((*links)[next_link].low), " refers to ",
            Describe((*links)[next_link].child), ", which is not on level ", level);
  }
  return true;
}

void Walk::MatchLink(const Reference& node, std::string_view low,
                     const std::vector<ChildLink>& links, size_t* next) {
  if (*next < links.size() && links[*next].low == low && links[*next].child == node) {
    ++*next;
    return;
  }
  for (; *next < links.size() && (links[*next].low <= low || links[*next].child == node); ++*next) {
    Problem("separator ", Bound(links[*next].low), " refers to ", Describe(links[*next].child),
            ", but there is ", Describe(node), " from ", Bound(low));
    if (links[*next].child == node) {
      ++*next;
      return;
    }
  }
  ++result_.missing_separators;
}

void Walk::TakeInternal(const Reference& node, std::vector<ChildLink>* below) {
  InternalNode decoded;
  const absl::Status status = DecodeInternal(image_.get(), layout_, &decoded);
  if (!status.ok()) {
    Problem(Describe(node), ": ", status.ToString());
    return;
  }
  // A leftmost child's separator is in the parent's parent, or it is the first of its level.
  below->push_back({decoded.header.low, decoded.header.leftmost});
  for (Separator& entry : decoded.entries) below->push_back({std::move(entry.key), entry.child});
}

void Walk::TakeLeaf(const Reference& node) {
  std::vector<LeafEntry> entries;
  if (!ReadLeafEntries(image_.get(), layout_, &entries)) {
    Problem(Describe(node), ": a key is there twice");
    return;
  }
  std::sort(entries.begin(), entries.end(),
            [](const LeafEntry& a, const LeafEntry& b) { return a.key < b.key; });
  for (LeafEntry& entry : entries) {
    if (!result_.entries.empty() && result_.entries.back().first >= entry.key) {
      Problem(Describe(node), ": key ", Bound(entry.key), " is out of order");
    }
    result_.entries.emplace_back(std::move(entry.key), std::move(entry.value));
  }
}

}  // namespace

TreeCheckResult CheckTree(const CatalogEntry& entry, bool crc, const ReadRemote& read,
                          size_t nodes_max) {
  return Walk(entry, crc, read, nodes_max).Run();
}

std::vector<std::string> CheckLocksFree(ServerId server, std::span<const std::byte> lock_table) {
  std::vector<std::string> problems;
  for (size_t at = 0; at + 8 <= lock_table.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, lock_table.data() + at, 8);
    if (word == LockWord::kFree) continue;
    problems.push_back(absl::StrCat("lock word ", at / 8, " of server ", server,
                                    " is held by compute server ", LockWord::Decode(word).owner));
    if (problems.size() == TreeCheckResult::kProblemsMax) break;
  }
  return problems;
}

}  // namespace pando
