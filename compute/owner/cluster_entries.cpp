#include "compute/owner/cluster_entries.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/byte_codec.h"

namespace pando {
namespace {

using wire::ByteReader;
using wire::ByteWriter;

constexpr uint8_t kFormat = 1;
// Between a tree and a border; the second one sorts behind every border.
constexpr char kBordered = '\0', kUnbordered = '\1';

template <typename T>
void PutBigEndian(T value, std::string* bytes) {
  for (int shift = 8 * (static_cast<int>(sizeof(T)) - 1); shift >= 0; shift -= 8) {
    bytes->push_back(static_cast<char>(value >> shift & 0xff));
  }
}

template <typename T>
bool TakeBigEndian(std::string_view* rest, T* value) {
  if (rest->size() < sizeof(T)) return false;
  *value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    *value = static_cast<T>(*value << 8 | static_cast<uint8_t>((*rest)[i]));
  }
  rest->remove_prefix(sizeof(T));
  return true;
}

// What every value begins with.
ByteWriter Head(char kind, const Stamp& stamp) {
  ByteWriter writer;
  writer.Put(kind).Put(kFormat).Put(stamp.incarnation).Put(stamp.counter);
  return writer;
}

void PutMember(MemberId member, ByteWriter* writer) {
  writer->Put(member.compute_server).Put(member.incarnation);
}

// `kind` and the writer have been there; nobody writes without an incarnation.
bool TakeHead(ByteReader* reader, char kind, Stamp* stamp) {
  char found = 0;
  uint8_t format = 0;
  return reader->Take(&found) && found == kind && reader->Take(&format) && format == kFormat &&
         reader->Take(&stamp->incarnation) && stamp->incarnation != 0 &&
         reader->Take(&stamp->counter);
}

bool TakeMember(ByteReader* reader, MemberId* member) {
  return reader->Take(&member->compute_server) && reader->Take(&member->incarnation) &&
         (!member->nobody() || *member == MemberId{});
}

absl::Status Verdict(bool accepted, char kind, std::string_view bytes) {
  if (accepted) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the cluster tree has a value for '", std::string(1, kind),
                   "' that is none: ", absl::CHexEscape({bytes.data(), bytes.size()}),
                   "; somebody else has written there, or a newer release: use one release"));
}

bool IsMemberKind(char kind) {
  return kind == MemberEntry::kKind || kind == LogEntry::kKind || kind == RecoveryEntry::kKind;
}

}  // namespace

std::string ToText(MemberId member) {
  if (member.nobody()) return "nobody";
  return absl::StrCat("compute server ", member.compute_server, ", incarnation ",
                      member.incarnation);
}

std::string MemberKey(char kind, MemberId member) {
  PANDO_CHECK(IsMemberKind(kind) && !member.nobody());
  std::string key = KindPrefix(kind);
  PutBigEndian(member.compute_server, &key);
  PutBigEndian(member.incarnation, &key);
  return key;
}

std::string RangePrefix(uint32_t tree_id) {
  std::string key = KindPrefix(RangeEntry::kKind);
  PutBigEndian(tree_id, &key);
  return key;
}

std::string RangeKey(uint32_t tree_id, std::string_view high) {
  PANDO_CHECK_LE(high.size(), kBorderBytesMax);
  std::string key = RangePrefix(tree_id);
  key.push_back(high.empty() ? kUnbordered : kBordered);
  key.append(high);
  return key;
}

absl::StatusOr<ClusterKey> ParseClusterKey(std::string_view bytes) {
  ClusterKey key;
  std::string_view rest = bytes;
  bool accepted = false;
  if (!rest.empty()) {
    key.kind = rest.front();
    rest.remove_prefix(1);
    if (IsMemberKind(key.kind)) {
      accepted = TakeBigEndian(&rest, &key.member.compute_server) &&
                 TakeBigEndian(&rest, &key.member.incarnation) && rest.empty() &&
                 !key.member.nobody();
    } else if (key.kind == RangeEntry::kKind && TakeBigEndian(&rest, &key.tree_id) &&
               !rest.empty()) {
      const char border = rest.front();
      key.high = rest.substr(1);
      accepted = border == kUnbordered ? key.high.empty()
                                       : border == kBordered && !key.high.empty() &&
                                             key.high.size() <= kBorderBytesMax;
    }
  }
  if (accepted) return key;
  return absl::DataLossError(absl::StrCat(
      "the cluster tree has a key that is none: ", absl::CHexEscape({bytes.data(), bytes.size()}),
      "; somebody else has written there, or a newer release: use one release"));
}

std::string DescribeKey(std::string_view bytes) {
  const absl::StatusOr<ClusterKey> key = ParseClusterKey(bytes);
  if (!key.ok()) return absl::StrCat("key ", absl::CHexEscape({bytes.data(), bytes.size()}));
  const std::string kind(1, key->kind);
  if (key->kind != RangeEntry::kKind) return absl::StrCat("'", kind, "' of ", ToText(key->member));
  return absl::StrCat("'", kind, "' of tree ", key->tree_id, " up to ",
                      key->high.empty() ? "its end" : absl::CHexEscape(key->high));
}

std::string Encode(const MemberEntry& entry) {
  PANDO_CHECK_LE(entry.address.size(), kServiceAddressBytesMax);
  return Head(MemberEntry::kKind, entry.stamp).Put(entry.state).PutString(entry.address).Take();
}

std::string Encode(const LogEntry& entry) {
  return Head(LogEntry::kKind, entry.stamp)
      .Put(entry.extent.server)
      .Put(entry.extent.server_life)
      .Put(entry.extent.offset)
      .Put(entry.extent.bytes)
      .Put(entry.extent.id)
      .Put(entry.epoch)
      .Take();
}

std::string Encode(const RecoveryEntry& entry) {
  ByteWriter writer = Head(RecoveryEntry::kKind, entry.stamp);
  PutMember(entry.claimant, &writer);
  return writer.Take();
}

std::string Encode(const RangeEntry& entry) {
  ByteWriter writer = Head(RangeEntry::kKind, entry.stamp);
  PutMember(entry.owner, &writer);
  writer.Put(entry.since);
  PutMember(entry.wished, &writer);
  return writer.Take();
}

absl::Status Parse(std::string_view bytes, MemberEntry* entry) {
  ByteReader reader(bytes);
  uint8_t state = 0;
  const bool taken = TakeHead(&reader, MemberEntry::kKind, &entry->stamp) && reader.Take(&state) &&
                     reader.TakeString(kServiceAddressBytesMax, &entry->address) && reader.Done();
  entry->state = static_cast<MemberEntry::State>(state);
  const bool known =
      entry->state >= MemberEntry::State::kJoining && entry->state <= MemberEntry::State::kLeaving;
  return Verdict(taken && known, MemberEntry::kKind, bytes);
}

absl::Status Parse(std::string_view bytes, LogEntry* entry) {
  ByteReader reader(bytes);
  LogExtent& extent = entry->extent;
  const bool taken = TakeHead(&reader, LogEntry::kKind, &entry->stamp) &&
                     reader.Take(&extent.server) && reader.Take(&extent.server_life) &&
                     reader.Take(&extent.offset) && reader.Take(&extent.bytes) &&
                     reader.Take(&extent.id) && reader.Take(&entry->epoch) && reader.Done();
  // What is added to it later does not wrap.
  const bool fits = extent.bytes > 0 && extent.offset <= UINT64_MAX - extent.bytes;
  return Verdict(taken && fits, LogEntry::kKind, bytes);
}

absl::Status Parse(std::string_view bytes, RecoveryEntry* entry) {
  ByteReader reader(bytes);
  return Verdict(TakeHead(&reader, RecoveryEntry::kKind, &entry->stamp) &&
                     TakeMember(&reader, &entry->claimant) && reader.Done(),
                 RecoveryEntry::kKind, bytes);
}

absl::Status Parse(std::string_view bytes, RangeEntry* entry) {
  ByteReader reader(bytes);
  const bool taken = TakeHead(&reader, RangeEntry::kKind, &entry->stamp) &&
                     TakeMember(&reader, &entry->owner) && reader.Take(&entry->since) &&
                     TakeMember(&reader, &entry->wished) && reader.Done();
  const bool makes_sense = entry->owner.nobody() ? entry->since == kNoLsn
                                                 : entry->since != kNoLsn && entry->wished.nobody();
  return Verdict(taken && makes_sense, RangeEntry::kKind, bytes);
}

}  // namespace pando
