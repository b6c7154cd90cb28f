// The order of one partition's dirty records: a B+-tree of their handles. An entry is four bytes of
// the key beside the handle (eight beside the child, in inner nodes), taken behind what all keys of
// the node have in common: a search looks at one record, unless keys agree further than that.
//
// Thread safety: none (the partition's mutex).
// Invariants:
//   1. A node's keys begin with its prefix; heads follow it, ascend, and are padded with zeros.
//      Where heads are equal the keys themselves decide: those of the records, and in inner nodes
//      the first key below the child.
//   2. Child i > 0 of an inner node holds exactly the keys that a search brings there. Its head
//      may be of a key that has gone: it is above no key below the child, and below none of the
//      child before it.
//   3. No node but the root is empty. One that falls under a quarter is merged with a neighbour
//      under the same parent if both together fill at most three quarters.
//   4. Nodes are as large as what they hold, in steps of four entries.
//   5. A node counts the records below it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "compute/hot/index_node.h"
#include "compute/hot/record_pool.h"

namespace pando {

class RecordIndex {
 public:
  // From the root to a place in a leaf. Good until an Insert() or Erase() with another path.
  class Path {
   private:
    friend class RecordIndex;
    static constexpr int kLevelsMax = 12;
    struct Step {
      IndexNode* node;
      uint32_t at;
    };
    std::array<Step, kLevelsMax> steps_;  // the leaf is at 0
  };

  explicit RecordIndex(const RecordPool* pool);
  ~RecordIndex();
  RecordIndex(const RecordIndex&) = delete;
  RecordIndex& operator=(const RecordIndex&) = delete;

  void Clear();

  // True: the path leads to the record. False: to where it would be, which may be behind a leaf's
  // last.
  bool Find(std::string_view key, Path* path) const {
    FindLeaf(key, path);
    return FindInLeaf(key, path);
  }
  // The two halves of it; the leaf comes nearer in between. Nothing changes meanwhile.
  void FindLeaf(std::string_view key, Path* path) const;
  bool FindInLeaf(std::string_view key, Path* path) const;
  RecordHandle At(const Path& path) const;  // where there is one
  // The record so many places further on comes nearer, if it is in the same leaf.
  void PrefetchAhead(const Path& path, uint32_t places) const {
    const IndexNode* const leaf = path.steps_[0].node;
    const uint32_t at = path.steps_[0].at + places;
    if (at < leaf->count) pool_->Prefetch(leaf->entries<IndexLeafEntry>()[at].handle());
  }
  // The record has moved; the key is the same.
  void Set(const Path& path, RecordHandle handle);
  // Where Find() found none; the path leads to it then.
  void Insert(Path* path, std::string_view key, RecordHandle handle);
  // Ends the path.
  void Erase(Path* path);

  // --- In order.
  // From behind a leaf's last record to the next leaf's first. False: there is none.
  bool ToRecord(Path* path) const;
  bool Next(Path* path) const;      // from a record
  bool Previous(Path* path) const;  // from anywhere
  void ToEnd(Path* path) const;     // behind the last of all
  // How many records there are before it, without a look at each.
  size_t RecordsBefore(const Path& path) const;

  size_t bytes() const { return bytes_; }  // of the heap

  // For tests: aborts unless the invariants hold. Returns the number of records.
  size_t Check() const;

 private:
  std::string_view KeyOf(const IndexLeafEntry& entry) const {
    return pool_->At(entry.handle())->key();
  }
  std::string_view KeyOf(const InnerEntry& entry) const { return FirstKey(entry.child); }
  std::string_view FirstKey(const IndexNode* node) const;
  uint32_t ChildOf(const IndexNode* node, std::string_view key) const;
  bool PlaceIn(const IndexNode* leaf, std::string_view key, uint32_t* at) const;
  // Below the step at that level: to the first place, or the last.
  void Descend(Path* path, int level, bool last) const;

  // --- record_index_change.cpp
  // A new node of these entries. `like`: whose heads they have, as far as its prefix fits; null:
  // they have none.
  template <typename Entry>
  IndexNode* Build(int level, std::span<const Entry> entries, size_t capacity,
                   const IndexNode* like);
  // Makes the prefix shorter, until the key has it.
  template <typename Entry>
  void ShortenPrefix(IndexNode* node, std::string_view key) const;
  void LowerHead(Path* path, std::string_view key) const;
  template <typename Entry>
  void InsertEntry(Path* path, int level, std::string_view key, Entry entry);
  template <typename Entry>
  void RemoveEntry(Path* path, int level);
  // There is room for another entry then.
  template <typename Entry>
  void SplitIfFull(Path* path, int level);
  template <typename Entry>
  void Resize(Path* path, int level, size_t capacity);
  // With the child to the right (of the parent's place) or to the left. False: they do not fit.
  template <typename Entry>
  bool Merge(Path* path, int level, bool right);
  void Replace(Path* path, int level, IndexNode* node);
  static size_t RecordsOf(std::span<const IndexLeafEntry> entries) { return entries.size(); }
  static size_t RecordsOf(std::span<const InnerEntry> entries);
  void Free(IndexNode* node);
  void FreeAll(IndexNode* node);
  size_t CheckNode(const IndexNode* node, std::string_view* last) const;

  const RecordPool* const pool_;
  IndexNode* root_;
  size_t bytes_ = 0;
};

}  // namespace pando
