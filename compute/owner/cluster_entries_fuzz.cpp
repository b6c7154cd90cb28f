// Fuzz target: whatever stands in the cluster tree is an entry or a status, and what is one is
// written again as the same bytes.
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "compute/owner/cluster_entries.h"

namespace pando {
namespace {

template <typename Entry>
int Check(std::string_view bytes) {
  Entry entry;
  if (!Parse(bytes, &entry).ok()) return 0;
  PANDO_CHECK(Encode(entry) == bytes);
  PANDO_CHECK_LE(bytes.size(), kClusterValueBytesMax);
  return 1;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const Stamp stamp = {0x01020304, 0x05060708090a0b0c};
  return {Encode(MemberEntry{stamp, MemberEntry::State::kServing, "10.0.0.1:7000"}),
          Encode(LogEntry{stamp, {3, 4, 5, 6, 7}, 8}),
          Encode(RecoveryEntry{stamp, {1, 2}}),
          Encode(RecoveryEntry{stamp, {}}),
          Encode(RangeEntry{stamp, {1, 2}, 3, {}}),
          Encode(RangeEntry{stamp, {}, kNoLsn, {4, 5}}),
          MemberKey('d', {1, 2}),
          RangeKey(3, "border"),
          RangeKey(3, "")};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const int accepted = Check<MemberEntry>(bytes) + Check<LogEntry>(bytes) +
                       Check<RecoveryEntry>(bytes) + Check<RangeEntry>(bytes);
  PANDO_CHECK_LE(accepted, 1);
  if (const auto key = ParseClusterKey(bytes); key.ok()) {
    PANDO_CHECK((key->kind == RangeEntry::kKind ? RangeKey(key->tree_id, key->high)
                                                : MemberKey(key->kind, key->member)) == bytes);
    PANDO_CHECK_LE(bytes.size(), kClusterKeyBytesMax);
  }
  (void)DescribeKey(bytes);
  return 0;
}
