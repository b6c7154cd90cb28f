// Fuzz target: whatever a slot or a cell holds, it is a value of that key or none, and no byte
// behind it is read.
#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/wire/value_cell.h"

namespace pando {

std::vector<std::string> FuzzSeeds() {
  CellReference reference;
  reference.cell = {RemoteAddress(1, 1 << 20), 7};
  std::vector<std::byte> image(CellLines(3, 100) * kLineBytes);
  WriteCell(image.data(), 3, 7, "key", std::string(100, 'v'), true, &reference);
  std::string stored;
  StoreReference(reference, &stored);
  return {stored + std::string(reinterpret_cast<const char*>(image.data()), image.size()), stored};
}

namespace {

void CheckSlotAndCell(std::string_view bytes) {
  const size_t slot_bytes = std::min<size_t>(bytes.size(), kStoredReferenceBytes);
  const std::optional<StoredValue> stored = ParseStored(bytes.substr(0, slot_bytes));
  if (!stored.has_value() || !stored->reference.has_value()) return;
  const std::string_view rest = bytes.substr(slot_bytes);
  const uint32_t needed = CellReadBytes(3, *stored->reference);
  std::vector<std::byte> image(std::max(needed, kCellGlanceBytes));
  std::memcpy(image.data(), rest.data(), std::min<size_t>(rest.size(), needed));
  const auto value = ValueInCell(image.data(), 3, "key", *stored->reference);
  if (value.has_value()) PANDO_CHECK_EQ(value->size(), stored->reference->value_bytes);
  const auto key = KeyOfCell(image.data(), kCellGlanceBytes, 3, stored->reference->cell.life);
  if (key.has_value()) PANDO_CHECK(!key->empty());
}

}  // namespace
}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pando::CheckSlotAndCell({reinterpret_cast<const char*>(data), size});
  return 0;
}
