// Looks at single nodes and finds the way to them, for checks: unlike the index code it caches
// nothing, repairs nothing, and says in words what it did not like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/control.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"
#include "common/wire/root_record.h"

namespace pando {

// Fills `into` with remote memory. Unavailable, DeadlineExceeded and ResourceExhausted end the
// check; any other error is the fault of the reference that led there.
using ReadRemote = std::function<absl::Status(RemoteAddress from, std::span<std::byte> into)>;

// A node as its left neighbour, or its parent, refers to it.
struct NodePlace {
  Reference node;
  std::string low;
};

// What one READ of a node showed. Everything behind `problem` is set where the image was accepted.
struct NodeLook {
  enum class Verdict { kFine, kTorn, kMovedRight, kBad };
  Verdict verdict = Verdict::kBad;
  std::string problem;  // in words, unless fine
  Reference node;
  NodeHeader header;
  std::vector<Separator> children;  // internal: the leftmost first, under the low fence
  std::vector<LeafEntry> entries;   // leaf: ascending

  bool fine() const { return verdict == Verdict::kFine; }
};

// "node SERVER:OFFSET life LIFE".
std::string DescribeNode(const Reference& node);
// A fence or key in hex; the empty one is infinity.
std::string DescribeBound(std::string_view key);

// Not thread-safe. All arguments must outlive it.
class NodeLooker {
 public:
  NodeLooker(const CatalogEntry& entry, const NodeLayout& layout, bool crc, const ReadRemote& read);

  // DataLoss: inconsistent, or another tree's.
  absl::StatusOr<RootRecord> ReadRoot();
  // Once. `key`: what the node is meant to cover.
  NodeLook Look(int level, const Reference& node, std::string_view key);
  // Descends from the root record. The child of the level above that covers `key`, not read itself.
  // NotFound: the tree has no such level (any more).
  absl::StatusOr<NodePlace> FindPlace(int level, std::string_view key);
  // The node that covers `key`, found from FindPlace() to the right.
  NodeLook FindNode(int level, std::string_view key);

  // Why memory could not be read, if it could not: then nothing above is to be blamed on the tree.
  const absl::Status& unreadable() const { return unreadable_; }

 private:
  static constexpr int kMovesRightMax = 10'000;  // bounds a descent over damaged nodes

  struct FreeAligned {
    void operator()(std::byte* data) const {
      ::operator delete (data, std::align_val_t{kLineBytes});
    }
  };

  absl::Status Read(RemoteAddress from, size_t bytes);
  NodeLook LookRight(int level, Reference node, std::string_view key);
  void Decode(int level, NodeLook* look) const;

  const CatalogEntry& entry_;
  const NodeLayout& layout_;
  const bool crc_;
  const ReadRemote& read_;
  const std::unique_ptr<std::byte, FreeAligned> image_;
  absl::Status unreadable_;
};

}  // namespace pando
