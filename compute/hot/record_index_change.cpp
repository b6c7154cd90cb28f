// How the tree of a RecordIndex changes.
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "compute/hot/record_index.h"

namespace pando {
namespace {

constexpr size_t kEntriesMax = 64;  // of a node
constexpr size_t kMergeBelow = kEntriesMax / 4, kMergedMax = kEntriesMax * 3 / 4;
constexpr size_t kStepEntries = 4;
constexpr size_t kPrefixAt = offsetof(IndexNode, prefix);

// Length of what two keys begin with.
size_t CommonBytes(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t bytes = 0;
  while (bytes < most && a[bytes] == b[bytes]) ++bytes;
  return bytes;
}

size_t BytesOf(const IndexNode* node) {
  return node->entries_at * size_t{8} +
         node->capacity * (node->level > 0 ? sizeof(InnerEntry) : sizeof(IndexLeafEntry));
}

// What an allocation takes from the heap: a word more, in units of two.
size_t HeapBytes(size_t bytes) { return (bytes + 8 + 15) / 16 * 16; }

}  // namespace

RecordIndex::RecordIndex(const RecordPool* pool) : pool_(pool) {
  root_ = Build<IndexLeafEntry>(0, {}, kStepEntries, nullptr);
}

RecordIndex::~RecordIndex() { FreeAll(root_); }

void RecordIndex::Clear() {
  FreeAll(root_);
  root_ = Build<IndexLeafEntry>(0, {}, kStepEntries, nullptr);
}

template <typename Entry>
IndexNode* RecordIndex::Build(int level, std::span<const Entry> entries, size_t capacity,
                              const IndexNode* like) {
  PANDO_CHECK_LT(level, Path::kLevelsMax);
  constexpr size_t kFirst = kFirstKey<Entry>;
  std::string_view prefix("");
  if (entries.size() > kFirst) {
    prefix = KeyOf(entries[kFirst]);
    prefix = prefix.substr(0, CommonBytes(prefix, KeyOf(entries.back())));
  }
  const size_t entries_at = (kPrefixAt + prefix.size() + 7) / 8;
  const size_t bytes = HeapBytes(entries_at * 8 + capacity * sizeof(Entry)) - 8;
  capacity = (bytes - entries_at * 8) / sizeof(Entry);
  auto* const node = static_cast<IndexNode*>(::operator new(bytes));
  node->count = static_cast<uint16_t>(entries.size());
  node->capacity = static_cast<uint16_t>(capacity);
  node->level = static_cast<uint8_t>(level);
  node->prefix_bytes = static_cast<uint8_t>(prefix.size());
  node->entries_at = static_cast<uint8_t>(entries_at);
  node->records = static_cast<uint32_t>(RecordsOf(entries));
  std::memcpy(reinterpret_cast<char*>(node) + kPrefixAt, prefix.data(), prefix.size());
  Entry* const to = node->entries<Entry>();
  std::copy(entries.begin(), entries.end(), to);
  if (like == nullptr || std::string_view(like->prefix, like->prefix_bytes) != prefix) {
    for (size_t i = kFirst; i < entries.size(); ++i)
      to[i].SetHead(HeadOf(KeyOf(to[i]), prefix.size()));
  }
  bytes_ += HeapBytes(BytesOf(node));
  return node;
}

void RecordIndex::Free(IndexNode* node) {
  bytes_ -= HeapBytes(BytesOf(node));
  ::operator delete(node);
}

void RecordIndex::FreeAll(IndexNode* node) {
  for (uint32_t i = 0; node->level > 0 && i < node->count; ++i) {
    FreeAll(node->entries<InnerEntry>()[i].child);
  }
  Free(node);
}

size_t RecordIndex::RecordsOf(std::span<const InnerEntry> entries) {
  size_t records = 0;
  for (const InnerEntry& entry : entries) records += entry.child->records;
  return records;
}

void RecordIndex::Replace(Path* path, int level, IndexNode* node) {
  IndexNode* const old = std::exchange(path->steps_[level].node, node);
  if (old == root_) {
    root_ = node;
  } else {
    const Path::Step& above = path->steps_[level + 1];
    above.node->entries<InnerEntry>()[above.at].child = node;
  }
  Free(old);
}

template <typename Entry>
void RecordIndex::Resize(Path* path, int level, size_t capacity) {
  const IndexNode* const node = path->steps_[level].node;
  IndexNode* const copy = Build<Entry>(level, node->all<Entry>(), capacity, node);
  copy->records = node->records;  // one of its children may be on its way
  Replace(path, level, copy);
}

template <typename Entry>
void RecordIndex::ShortenPrefix(IndexNode* node, std::string_view key) const {
  constexpr size_t kFirst = kFirstKey<Entry>;
  const std::span<const Entry> entries = node->all<Entry>();
  std::string_view prefix(node->prefix, node->prefix_bytes);
  prefix = prefix.substr(0, CommonBytes(prefix, key));
  // First keys below children may have other beginnings than those that the prefix was made of.
  if (entries.size() > kFirst) {
    prefix = prefix.substr(0, CommonBytes(prefix, KeyOf(entries[kFirst])));
    prefix = prefix.substr(0, CommonBytes(prefix, KeyOf(entries.back())));
  }
  if (prefix.size() == node->prefix_bytes) return;
  node->prefix_bytes = static_cast<uint8_t>(prefix.size());
  Entry* const to = node->entries<Entry>();
  for (size_t i = kFirst; i < entries.size(); ++i)
    to[i].SetHead(HeadOf(KeyOf(to[i]), prefix.size()));
}

template <typename Entry>
void RecordIndex::InsertEntry(Path* path, int level, std::string_view key, Entry entry) {
  if (path->steps_[level].node->count == path->steps_[level].node->capacity) {
    const size_t capacity = path->steps_[level].node->capacity + kStepEntries;
    Resize<Entry>(path, level, std::min(capacity, kEntriesMax));
  }
  IndexNode* const node = path->steps_[level].node;
  if (ComparePrefix(node, key) != 0) ShortenPrefix<Entry>(node, key);
  entry.SetHead(HeadOf(key, node->prefix_bytes));
  Entry* const at = node->entries<Entry>() + path->steps_[level].at;
  std::copy_backward(at, node->entries<Entry>() + node->count,
                     node->entries<Entry>() + node->count + 1);
  *at = entry;
  ++node->count;
}

template <typename Entry>
void RecordIndex::SplitIfFull(Path* path, int level) {
  IndexNode* const node = path->steps_[level].node;
  const uint32_t at = path->steps_[level].at;
  if (node->count < kEntriesMax) return;
  if (level == root_->level) {
    const InnerEntry only{0, node};
    root_ = Build<InnerEntry>(level + 1, {&only, 1}, 2, nullptr);
    path->steps_[level + 1] = {root_, 0};
  } else {
    SplitIfFull<InnerEntry>(path, level + 1);
  }
  // Who inserts in order leaves full nodes behind. In an inner node the new child comes behind that
  // of the path.
  constexpr uint32_t kFew = kEntriesMax / 16;
  const uint32_t count = node->count, place = level > 0 ? at + 1 : at;
  const uint32_t middle = place == count ? count - kFew : at == 0 ? kFew : count / 2;
  const auto left = node->all<Entry>().first(middle), right = node->all<Entry>().subspan(middle);
  IndexNode* const upper = Build<Entry>(level, right, right.size() + kStepEntries, node);
  Replace(path, level, Build<Entry>(level, left, left.size() + 1, node));
  ++path->steps_[level + 1].at;
  InsertEntry<InnerEntry>(path, level + 1, FirstKey(upper), {0, upper});
  // A new key at the border is below the upper node's first, by which searches come there.
  if (place <= middle) {
    --path->steps_[level + 1].at;
  } else {
    path->steps_[level] = {upper, at - middle};
  }
}

// A key that is now the first below a child was brought there by the child's head. Nodes above that
// were made anew since its search have heads of first keys that were there before it.
void RecordIndex::LowerHead(Path* path, std::string_view key) const {
  int level = 1;
  while (level <= root_->level && path->steps_[level].at == 0) ++level;
  if (level > root_->level) return;  // what is below all heads comes to the first child
  IndexNode* const node = path->steps_[level].node;
  if (ComparePrefix(node, key) != 0) ShortenPrefix<InnerEntry>(node, key);
  InnerEntry& entry = node->entries<InnerEntry>()[path->steps_[level].at];
  entry.head = std::min(entry.head, HeadOf(key, node->prefix_bytes));
}

void RecordIndex::Insert(Path* path, std::string_view key, RecordHandle handle) {
  SplitIfFull<IndexLeafEntry>(path, 0);
  InsertEntry<IndexLeafEntry>(path, 0, key, {handle});
  if (path->steps_[0].at == 0) LowerHead(path, key);
  for (int level = 0; level <= root_->level; ++level) ++path->steps_[level].node->records;
}

void RecordIndex::Erase(Path* path) {
  for (int level = 0; level <= root_->level; ++level) --path->steps_[level].node->records;
  RemoveEntry<IndexLeafEntry>(path, 0);
}

template <typename Entry>
void RecordIndex::RemoveEntry(Path* path, int level) {
  IndexNode* const node = path->steps_[level].node;
  Entry* const at = node->entries<Entry>() + path->steps_[level].at;
  std::copy(at + 1, node->entries<Entry>() + node->count, at);
  --node->count;
  if (level == root_->level) {
    while (root_->level > 0 && root_->count == 1) {
      IndexNode* const above = root_;
      root_ = above->entries<InnerEntry>()[0].child;
      Free(above);
    }
    if (level > root_->level) return;
  } else if (node->count == 0) {
    Free(node);
    RemoveEntry<InnerEntry>(path, level + 1);
    return;
  } else if (node->count < kMergeBelow &&
             (Merge<Entry>(path, level, true) || Merge<Entry>(path, level, false))) {
    return;
  }
  if (node->capacity >= node->count + 2 * kStepEntries)
    Resize<Entry>(path, level, node->count + kStepEntries);
}

template <typename Entry>
bool RecordIndex::Merge(Path* path, int level, bool right) {
  Path::Step& above = path->steps_[level + 1];
  if (right ? above.at + 1 == above.node->count : above.at == 0) return false;
  if (!right) --above.at;
  InnerEntry* const pair = above.node->entries<InnerEntry>() + above.at;
  IndexNode *const lower = pair[0].child, *const upper = pair[1].child;
  if (size_t{lower->count} + upper->count > kMergedMax) {
    if (!right) ++above.at;
    return false;
  }
  std::vector<Entry> entries(lower->entries<Entry>(), lower->entries<Entry>() + lower->count);
  entries.insert(entries.end(), upper->entries<Entry>(), upper->entries<Entry>() + upper->count);
  pair[0].child = Build<Entry>(level, entries, entries.size(), nullptr);
  Free(lower);
  Free(upper);
  ++above.at;
  RemoveEntry<InnerEntry>(path, level + 1);
  return true;
}

}  // namespace pando
