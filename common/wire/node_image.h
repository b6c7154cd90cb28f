// A node image: a local copy of a node's bytes, and the one function that says what it is (rule
// V1).
//
// Images are 64-byte aligned buffers of layout.node_bytes() bytes, as READ from remote memory: any
// bytes at all. Nothing here trusts them; nothing else in Pando interprets header lines before
// Classify() accepted the image. Thread safety: const functions on distinct images may run in
// parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"

namespace pando {

inline constexpr uint16_t kNodeMagic = 0x4e50;  // "PN"

enum class NodeState : uint8_t { kFree = 0, kLive = 1, kMerging = 2, kDead = 3 };

// A key bound. Keys are never empty, so the empty string stands for -infinity as a low fence and
// +infinity as a high fence.
struct NodeHeader {
  uint32_t tree_id = 0;
  uint8_t level = 0;  // 0: leaf
  NodeState state = NodeState::kFree;
  uint32_t life = 0;
  Reference right;     // null: rightmost of its level
  Reference peer;      // `left` of a merging node, `absorbing` of a merging survivor
  Reference leftmost;  // internal: child for keys below the first separator; leaf: null
  std::string low, high;
  std::string reserve;  // kReserveBytes (common/protocol.md, rule F4), kept by splits

  static constexpr size_t kReserveBytes = 32;
};

enum class NodeVerdict : uint8_t {
  kAccepted,
  kTorn,        // read again (rule V4)
  kStale,       // consistent, but not the node meant (rule V3)
  kMovedRight,  // key >= high
  kMovedLeft,   // key < low
};

// What the reader means: the reference it followed and the key it is after.
struct NodeExpectation {
  uint32_t tree_id = 0;
  uint8_t level = 0;
  uint32_t life = 0;
  std::string_view key;  // empty: the smallest possible key (scan cursors)
};

// Result of looking for the expectation's key in an accepted leaf, found in the same pass.
struct LeafMatch {
  int slot = -1;  // -1: not found
};

// Rule V1. `crc`: lines carry checksums (superblock). For a leaf and a non-null `match` it examines
// every slot for the key (rule V2); two in-fence slots with that key make the image torn. Malformed
// lengths in an otherwise consistent image are kStale, never out-of-bounds reads.
NodeVerdict Classify(const std::byte* image, const NodeLayout& layout,
                     const NodeExpectation& expectation, bool crc, LeafMatch* match = nullptr);

// Rule N2: what line 0 and the groups of the key's window say, when the other bytes of `image` may
// be anything.
enum class WindowVerdict : uint8_t {
  kFound,    // `match` has the slot
  kAbsent,   // the key is not in the leaf
  kFlagged,  // the key is not in its window; the other lines say whether it is in the leaf
  kUnclear,  // READ the whole leaf
};
// A get may READ the first groups of the window alone (NodeLayout::near_groups()).
enum class WindowPart : uint8_t { kAll, kNear };
// Of the near groups: kFound, or kFlagged, as they do not say whether the key is elsewhere.
// The expectation is of a leaf (level 0) that covers the key if its high fence is above: its low
// fence was seen to be at most the key, in this life. Of a layout with windows, for a key of 1 to
// key_bytes_max bytes.
WindowVerdict ClassifyWindow(const std::byte* image, const NodeLayout& layout,
                             const NodeExpectation& expectation, bool crc, LeafMatch* match,
                             WindowPart part = WindowPart::kAll);
// The slot is in the near groups of the key's window.
bool IsNear(const NodeLayout& layout, std::string_view key, uint32_t slot);
// The lines that it looks at besides line 0: runs in no order, two where the window goes on at the
// leaf's first group.
struct WindowRuns {
  struct Run {
    uint32_t first_line = 0, line_count = 0;
  };
  Run runs[2];
  uint32_t count = 0;
};
WindowRuns WindowOf(const NodeLayout& layout, std::string_view key,
                    WindowPart part = WindowPart::kAll);
// What is READ of a leaf so: line 0 and these runs, each line once. A run that begins one line
// behind line 0 is READ together with it: the line between is fewer bytes than another verb.
struct WindowReads {
  WindowRuns::Run runs[3];
  uint32_t count = 0;
};
WindowReads ReadsOf(const WindowRuns& window);

// Consistency of versions (and checksums) alone: what makes an image torn, whatever it is an image
// of.
bool LinesConsistent(const std::byte* image, const NodeLayout& layout, bool crc);

// Accessors for an image that Classify() accepted (or that this process formatted).
NodeHeader ReadHeader(const std::byte* image, const NodeLayout& layout);
Reference RightOf(const std::byte* image);
uint32_t LifeOf(const std::byte* image);
NodeState StateOf(const std::byte* image);
// Rule M7: the node takes part in a merge, or in a shrinking of the root, that has not ended.
bool IsMarked(const std::byte* image);
Reference PeerOf(const std::byte* image);
// NodeHeader::reserve, in the image.
std::string_view ReserveOf(const std::byte* image);
// The fences. `scratch` is used where the key continues in header lines of its own; the view lives
// as long as both image and scratch.
struct FenceScratch {
  char bytes[256];
};
std::string_view LowFence(const std::byte* image, const NodeLayout& layout, FenceScratch* scratch);
std::string_view HighFence(const std::byte* image, const NodeLayout& layout, FenceScratch* scratch);

// --- Writing. Images under construction or held under the node's lock.

// Writes all header lines' payloads (not versions). A missing `reserve` is zeros.
void WriteHeader(std::byte* image, const NodeLayout& layout, const NodeHeader& header);
void SetRight(std::byte* image, const Reference& right);
// State and peer: line 0 alone (rules M2, M5, M6).
void SetMarker(std::byte* image, NodeState state, const Reference& peer);
// Replaces `high` (line 0 and its continuation lines).
void SetHigh(std::byte* image, const NodeLayout& layout, std::string_view high);

// Zeroes the payloads behind the header: no slots, no entries.
void ClearBody(std::byte* image, const NodeLayout& layout);

// Rule F2, node level: every line gets NV newer than every line's NV of `old_image` (the first NV
// is 1) and an EV that differs from every EV of its group's lines in `old_image`; checksums follow.
// `old_image` may be `image` itself, may be torn, or any bytes at all.
void SealNodeLevel(std::byte* image, const std::byte* old_image, const NodeLayout& layout,
                   bool crc);
// Rule F2, entry level: the lines [first_line, first_line + line_count) of one group get one new
// EV; NV stays.
void SealEntryLevel(std::byte* image, uint32_t first_line, uint32_t line_count, bool crc);

// Rule F4: life of a node being formatted over `old_image` (any bytes): old life + 1, never 0.
uint32_t NextLife(const std::byte* old_image);

}  // namespace pando
