#include "compute/hot/record_index.h"

#include "common/base/check.h"

namespace pando {
namespace {

// What is fetched of a leaf: all but the last entries of a full one with a long prefix.
constexpr size_t kPrefetchBytes = 512;

}  // namespace

std::string_view RecordIndex::FirstKey(const IndexNode* node) const {
  while (node->level > 0) node = node->entries<InnerEntry>()[0].child;
  return KeyOf(node->entries<IndexLeafEntry>()[0]);
}

uint32_t RecordIndex::ChildOf(const IndexNode* node, std::string_view key) const {
  const int side = ComparePrefix(node, key);
  if (side != 0) return side < 0 ? 0 : node->count - 1u;
  const uint64_t head = HeadOf(key, node->prefix_bytes);
  const InnerEntry* const entries = node->entries<InnerEntry>() + 1;
  const uint32_t count = node->count - 1u;
  uint32_t at = CountBelow(entries, count, head), end = at;
  while (end < count && entries[end].head == head) ++end;
  while (at < end) {
    const uint32_t middle = (at + end) / 2;
    if (FirstKey(entries[middle].child) <= key) {
      at = middle + 1;
    } else {
      end = middle;
    }
  }
  return at;
}

bool RecordIndex::PlaceIn(const IndexNode* leaf, std::string_view key, uint32_t* at) const {
  const int side = ComparePrefix(leaf, key);
  if (side != 0) {
    *at = side < 0 ? 0 : leaf->count;
    return false;
  }
  const uint64_t order = IndexLeafEntry::OrderOf(HeadOf(key, leaf->prefix_bytes));
  const IndexLeafEntry* const entries = leaf->entries<IndexLeafEntry>();
  uint32_t first = CountBelow(entries, leaf->count, order), end = first;
  while (end < leaf->count && entries[end].order() == order) ++end;
  while (first < end) {
    const uint32_t middle = (first + end) / 2;
    const int side_of_key = KeyOf(entries[middle]).compare(key);
    if (side_of_key == 0) {
      *at = middle;
      return true;
    }
    (side_of_key < 0 ? first : end) = side_of_key < 0 ? middle + 1 : middle;
  }
  *at = first;
  return false;
}

void RecordIndex::FindLeaf(std::string_view key, Path* path) const {
  IndexNode* node = root_;
  for (int level = root_->level; level > 0; --level) {
    const uint32_t at = ChildOf(node, key);
    path->steps_[level] = {node, at};
    node = node->entries<InnerEntry>()[at].child;
    // A search touches a few of its lines, one after the other: all are fetched together.
    const char* const line = reinterpret_cast<const char*>(node);
    for (size_t i = 0; i < kPrefetchBytes; i += 64) __builtin_prefetch(line + i);
  }
  path->steps_[0] = {node, 0};
}

bool RecordIndex::FindInLeaf(std::string_view key, Path* path) const {
  Path::Step& step = path->steps_[0];
  return PlaceIn(step.node, key, &step.at);
}

RecordHandle RecordIndex::At(const Path& path) const {
  return path.steps_[0].node->entries<IndexLeafEntry>()[path.steps_[0].at].handle();
}

void RecordIndex::Set(const Path& path, RecordHandle handle) {
  IndexLeafEntry& entry = path.steps_[0].node->entries<IndexLeafEntry>()[path.steps_[0].at];
  entry.word = entry.order() | handle;
}

void RecordIndex::Descend(Path* path, int level, bool last) const {
  while (level-- > 0) {
    const Path::Step& above = path->steps_[level + 1];
    IndexNode* const node = above.node->entries<InnerEntry>()[above.at].child;
    path->steps_[level] = {node, last ? node->count - 1u : 0};
  }
}

bool RecordIndex::ToRecord(Path* path) const {
  if (path->steps_[0].at < path->steps_[0].node->count) return true;
  for (int level = 1; level <= root_->level; ++level) {
    Path::Step& step = path->steps_[level];
    if (step.at + 1 == step.node->count) continue;
    ++step.at;
    Descend(path, level, false);
    return true;
  }
  return false;
}

bool RecordIndex::Next(Path* path) const {
  ++path->steps_[0].at;
  return ToRecord(path);
}

bool RecordIndex::Previous(Path* path) const {
  for (int level = 0; level <= root_->level; ++level) {
    Path::Step& step = path->steps_[level];
    if (step.at == 0) continue;
    --step.at;
    Descend(path, level, true);
    return true;
  }
  return false;
}

void RecordIndex::ToEnd(Path* path) const {
  const int top = root_->level;
  path->steps_[top] = {root_, root_->count - (top > 0 ? 1u : 0u)};
  Descend(path, top, true);
  path->steps_[0].at = path->steps_[0].node->count;
}

size_t RecordIndex::RecordsBefore(const Path& path) const {
  size_t records = path.steps_[0].at;
  for (int level = 1; level <= root_->level; ++level) {
    const Path::Step& step = path.steps_[level];
    for (uint32_t i = 0; i < step.at; ++i) {
      records += step.node->entries<InnerEntry>()[i].child->records;
    }
  }
  return records;
}

size_t RecordIndex::Check() const {
  std::string_view last;
  return CheckNode(root_, &last);
}

size_t RecordIndex::CheckNode(const IndexNode* node, std::string_view* last) const {
  PANDO_CHECK(node->count > 0 || node == root_);
  PANDO_CHECK_LE(node->count, node->capacity);
  size_t records = 0;
  for (uint32_t i = 0; i < node->count; ++i) {
    if (node->level > 0) {
      const InnerEntry& entry = node->entries<InnerEntry>()[i];
      PANDO_CHECK_EQ(entry.child->level + 1, node->level);
      records += CheckNode(entry.child, last);
      continue;
    }
    const IndexLeafEntry& entry = node->entries<IndexLeafEntry>()[i];
    const std::string_view key = KeyOf(entry);
    PANDO_CHECK(key > *last) << "keys are out of order";
    *last = key;
    Path path;
    PANDO_CHECK(Find(key, &path) && At(path) == entry.handle()) << "a search misses its record";
    ++records;
  }
  PANDO_CHECK_EQ(records, node->records);
  return records;
}

}  // namespace pando
