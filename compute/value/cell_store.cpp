#include "compute/value/cell_store.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/server_index.h"
#include "compute/index/operations.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// What is posted together: bounds the buffers of one operation.
constexpr size_t kBatchMax = 32;
constexpr size_t kBatchBytesMax = 256 << 10;

// The first of `items` that go together.
template <typename Item, typename BytesOf>
size_t BatchOf(absl::Span<const Item> items, BytesOf bytes_of) {
  size_t count = 0, bytes = 0;
  for (; count < std::min(items.size(), kBatchMax); ++count) {
    bytes += bytes_of(items[count]);
    if (count > 0 && bytes > kBatchBytesMax) break;
  }
  return count;
}

// The element that is of that server, made where there is none.
template <typename T, typename Make>
T& OfServer(std::vector<std::pair<ServerId, std::unique_ptr<T>>>* all, ServerId server, Make make) {
  for (auto& [its, element] : *all) {
    if (its == server) return *element;
  }
  all->emplace_back(server, make());
  return *all->back().second;
}

}  // namespace

absl::StatusOr<SpareNode> CellStore::Take(OperationContext& context, NodePoolId pool) {
  NodeAllocator& allocator = tree_.environment.allocator;
  for (bool waited = false;; waited = true) {
    std::optional<SpareNode> spare = allocator.TryTake(pool, 0, waited);
    if (spare.has_value()) return *std::move(spare);
    PANDO_RETURN_IF_ERROR(tree_.RefillCells(context, pool.cell_lines));
  }
}

absl::StatusOr<CellReference> CellStore::Write(OperationContext& context, std::string_view key,
                                               std::string_view value) {
  NewValue one{.key = key, .value = value, .reference = {}};
  PANDO_RETURN_IF_ERROR(WriteBatch(context, {&one, 1}));
  return one.reference;
}

absl::Status CellStore::WriteAll(OperationContext& context, absl::Span<NewValue> values) {
  for (size_t written = 0; written < values.size();) {
    const auto rest = values.subspan(written);
    const size_t count =
        BatchOf<NewValue>(rest, [](const NewValue& value) { return value.value.size(); });
    const absl::Status status = WriteBatch(context, rest.first(count));
    if (!status.ok()) {
      for (const NewValue& value : values.first(written)) Free(value.key, value.reference);
      return status;
    }
    written += count;
  }
  return absl::OkStatus();
}

absl::Status CellStore::WriteBatch(OperationContext& context, absl::Span<NewValue> values) {
  NodeAllocator& allocator = tree_.environment.allocator;
  std::vector<std::pair<NodePoolId, SpareNode>> cells;
  absl::Status status;
  for (const NewValue& value : values) {
    const NodePoolId pool = PoolOf(value.key.size(), value.value.size());
    absl::StatusOr<SpareNode> cell = Take(context, pool);
    status = cell.status();
    if (!status.ok()) break;
    cells.emplace_back(pool, *std::move(cell));
  }
  std::vector<BufferLease> images;
  std::vector<std::pair<ServerId, std::unique_ptr<WriteBack>>> writes;
  const uint32_t packet_bytes = tree_.entry.shape.packet_bytes;
  for (size_t i = 0; status.ok() && i < values.size(); ++i) {
    NewValue& value = values[i];
    const auto& [pool, cell] = cells[i];
    absl::StatusOr<BufferLease> image =
        context.session.buffers().Lease(pool.cell_lines * kLineBytes);
    status = image.status();
    if (!status.ok()) break;
    value.reference.cell = cell.reference();
    WriteCell(image->data(), tree_.id(), cell.life, value.key, value.value, tree_.environment.crc,
              &value.reference);
    const ServerId server = cell.address.server();
    WriteBack& write = OfServer(
        &writes, server, [&] { return std::make_unique<WriteBack>(context, tree_, server); });
    const uint32_t bytes = CellReadBytes(value.key.size(), value.reference);
    for (uint32_t at = 0; status.ok() && at < bytes; at += packet_bytes) {
      status = write.AddRaw(RemoteAddress(server, cell.address.offset() + at),
                            image->Slice(at, std::min(packet_bytes, bytes - at)));
    }
    images.push_back(*std::move(image));
  }
  if (status.ok() && !RuleHolds(Rule::kK1) && values.size() == 1) return status;  // WriteLate()
  if (status.ok()) {
    std::vector<WriteBack*> all;
    for (const auto& [server, write] : writes) all.push_back(write.get());
    status = WriteBack::FlushAll(context, all);
  }
  if (status.ok()) return status;
  for (const auto& [server, write] : writes) {
    if (!write->posted()) continue;
    // What has begun where nothing failed is ended: a server takes only written cells back.
    if (write->last_status().ok()) (void)write->Flush();
    allocator.NoteFailure(server, write->life(), write->last_status());
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    auto& [pool, cell] = cells[i];
    const ServerId server = cell.address.server();
    const auto write = std::find_if(writes.begin(), writes.end(),
                                    [server](const auto& one) { return one.first == server; });
    const bool added = i < images.size();
    if (!added || !write->second->posted()) {
      allocator.PutBack(pool, std::move(cell));
    } else if (write->second->all_written()) {
      allocator.Free(pool, cell.reference());
    } else {
      allocator.NoteUncertain(tree_.id(), server);  // rule R6
    }
  }
  return status;
}

absl::Status CellStore::WriteLate(OperationContext& context, std::string_view key,
                                  std::string_view value, const CellReference& reference) {
  const uint32_t lines = CellLines(key.size(), value.size());
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(lines * kLineBytes));
  CellReference again = reference;
  WriteCell(image.data(), tree_.id(), reference.cell.life, key, value, tree_.environment.crc,
            &again);
  WriteBack write(context, tree_, reference.cell.address.server());
  PANDO_RETURN_IF_ERROR(write.AddRaw(reference.cell.address, image.buffer()));
  return write.Flush();
}

absl::StatusOr<bool> CellStore::Read(OperationContext& context, std::string_view key,
                                     const CellReference& reference, std::string* value) {
  WantedValue wanted{.key = key, .reference = reference, .value = value};
  PANDO_RETURN_IF_ERROR(ReadBatch(context, {&wanted, 1}));
  return wanted.found;
}

absl::Status CellStore::ReadAll(OperationContext& context, absl::Span<WantedValue> wanted) {
  while (!wanted.empty()) {
    const size_t count = BatchOf<WantedValue>(
        wanted, [](const WantedValue& value) { return value.reference.value_bytes; });
    PANDO_RETURN_IF_ERROR(ReadBatch(context, wanted.first(count)));
    wanted.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status CellStore::ReadBatch(OperationContext& context, absl::Span<WantedValue> wanted) {
  std::vector<BufferLease> images;
  std::vector<std::unique_ptr<ChainLease>> leases;
  std::vector<Chain*> chains;
  const auto chain_to = [&](ServerId server) -> Chain& {
    for (Chain* const chain : chains) {
      if (chain->server() == server && chain->size() < static_cast<size_t>(Chain::kMaxVerbs)) {
        return *chain;
      }
    }
    leases.push_back(std::make_unique<ChainLease>(&context.session.buffers()));
    chains.push_back(leases.back()->get());
    chains.back()->Reset(server);
    return *chains.back();
  };
  for (const WantedValue& value : wanted) {
    const RemoteAddress at = value.reference.cell.address;
    const uint32_t bytes = CellReadBytes(value.key.size(), value.reference);
    PANDO_ASSIGN_OR_RETURN(BufferLease image, context.session.buffers().Lease(bytes));
    chain_to(at.server()).Read(MemorySpace::kMain, at.offset(), image.buffer());
    images.push_back(std::move(image));
  }
  absl::Status read = chains.size() == 1 ? context.Await(chains.front()) : context.AwaitAll(chains);
  if (IsNotConnected(read) && context.AwaitServer(chains.front()->server()))
    return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(read);
  for (size_t i = 0; i < wanted.size(); ++i) {
    WantedValue& value = wanted[i];
    const std::optional<std::string_view> found =
        ValueInCell(images[i].data(), tree_.id(), value.key, value.reference);
    value.found = found.has_value();
    if (value.found) value.value->assign(*found);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CellStore::ReadWithSlot(OperationContext& context, std::string_view key,
                                             const CellReference& place, std::string* stored,
                                             std::string* value) {
  const uint32_t bytes = CellReadBytes(key.size(), place);
  PANDO_ASSIGN_OR_RETURN(const BufferLease image, context.session.buffers().Lease(bytes));
  ChainLease cell(&context.session.buffers());
  cell->Reset(place.cell.address.server());
  cell->Read(MemorySpace::kMain, place.cell.address.offset(), image.buffer());
  PANDO_RETURN_IF_ERROR(GetKeyWith(context, tree_, key, stored, cell.get()));
  if (!cell->done() || !cell->ok()) return false;
  const std::optional<StoredValue> parsed = ParseStored(*stored);
  if (!parsed.has_value()) return false;
  if (parsed->reference != place && RuleHolds(Rule::kK5)) return false;
  const std::optional<std::string_view> found = ValueInCell(image.data(), tree_.id(), key, place);
  if (found.has_value()) value->assign(*found);
  return found.has_value();
}

absl::StatusOr<std::string> CellStore::KeyOf(OperationContext& context, const Reference& cell,
                                             uint32_t lines) {
  const uint32_t bytes = std::min(lines * kLineBytes, kCellGlanceBytes);
  PANDO_ASSIGN_OR_RETURN(const BufferLease image, context.session.buffers().Lease(bytes));
  ChainLease chain(&context.session.buffers());
  absl::Status read;
  do {
    chain->Reset(cell.address.server());
    chain->Read(MemorySpace::kMain, cell.address.offset(), image.buffer());
    read = context.Await(chain.get());
  } while (absl::IsAborted(read) && !context.expired());
  PANDO_RETURN_IF_ERROR(read);
  const std::string_view key =
      KeyOfCell(image.data(), bytes, tree_.id(), cell.life).value_or(std::string_view());
  return std::string(key.size() <= tree_.layout.key_bytes_max() ? key : std::string_view());
}

void CellStore::NoteLinked(std::string_view key, const CellReference& reference) {
  tree_.environment.allocator.NoteLinked(PoolOf(key.size(), reference.value_bytes), reference.cell);
}

void CellStore::Free(std::string_view key, const CellReference& reference) {
  tree_.environment.allocator.Free(PoolOf(key.size(), reference.value_bytes), reference.cell);
}

void CellStore::FreeAll(OperationContext& context, const CellRuns& cells) {
  NodeAllocator& allocator = tree_.environment.allocator;
  size_t queued = 0;
  cells.ForEach([&](const Reference& cell, uint16_t lines) {
    const NodePoolId pool(tree_.id(), lines);
    allocator.Free(pool, cell);
    // Only so many wait to be told; what there is no time for is left to a sweep.
    if (++queued % kNodesPerRequestMax != 0 || context.expired() || context.session.fenced())
      return;
    allocator.FlushIfMany(context, pool);
  });
  allocator.FlushTree(context, tree_.id());
}

void CellStore::NoteOneIsOut() { tree_.environment.allocator.NoteCellsDue(tree_.id()); }

void CellStore::NoteUncertain() { tree_.environment.allocator.NoteUncertain(tree_.id()); }

void CellStore::FlushIfMany(OperationContext& context, std::string_view key,
                            const CellReference& reference) {
  tree_.environment.allocator.FlushIfMany(context, PoolOf(key.size(), reference.value_bytes));
}

}  // namespace pando
