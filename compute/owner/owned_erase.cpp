// Ranges of an owned tree that are erased: keys are read leaves at a time, and erased by messages.
#include <string>
#include <utility>
#include <vector>

#include "compute/index/erase_range.h"
#include "compute/index/write_workers.h"
#include "compute/owner/owned_reader.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

// Leaves that are read at once.
constexpr size_t kEraseLeaves = 16;
// Who asks other members for their keys side by side, so that requests share messages.
constexpr size_t kEraseCoroutines = 16;

// Of one piece of a range: each run is a part of the call.
class EraseHost final : public WriteWorkers::Host {
 public:
  EraseHost(OperationContext* context, OwnedTree* tree) : context_(*context), tree_(*tree) {}

  SessionContext& session() override { return context_.session; }
  size_t coroutines_max() const override { return kEraseCoroutines; }
  size_t WriteRun(absl::Span<const RunWrite> writes, std::vector<MissingSeparator>*) override {
    OperationContext part(context_, context_.deadline_ns());
    const size_t done = tree_.WriteRun(part, writes);
    context_.cost.round_trips += part.cost.round_trips;
    context_.cost.verbs += part.cost.verbs;
    context_.cost.bytes_read += part.cost.bytes_read;
    context_.cost.bytes_written += part.cost.bytes_written;
    return done;
  }
  std::optional<std::string> NextBorder(std::string_view key) override {
    return tree_.NextBorder(key);
  }
  void LeadTo(std::string_view) override {}
  void InsertSeparators(std::vector<MissingSeparator>* separators) override {
    separators->clear();  // there are none: no leaf is written
  }

 private:
  OperationContext& context_;
  OwnedTree& tree_;
};

}  // namespace

absl::Status OwnedTree::EraseKeys(OperationContext& context, const std::vector<std::string>& keys,
                                  uint64_t* erased, std::vector<std::string>* erased_keys) {
  std::vector<WriteOperation> operations;
  std::vector<absl::Status> results(keys.size());
  std::vector<RunWrite> writes;
  operations.reserve(keys.size());
  writes.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    operations.push_back({.kind = WriteKind::kErase, .key = keys[i], .blind = true});
    writes.push_back({&operations[i], &results[i], nullptr});
  }
  absl::Status first;
  EraseHost host(&context, this);
  const auto done = [&](size_t i) {
    if (results[i].ok()) {
      ++*erased;
      if (erased_keys != nullptr) erased_keys->push_back(keys[i]);
    } else if (!absl::IsNotFound(results[i]) && first.ok()) {
      first = results[i];
    }
  };
  WriteWorkers workers(&host, writes, context.deadline_ns(), done);
  if (workers.Sort()) {
    workers.Run();
  } else {
    workers.RefuseAll();
  }
  return first;
}

absl::Status OwnedTree::EraseRange(OperationContext& context, const KeyRange& range,
                                   NoteErased note, ErasedKeys* keys) {
  OwnedReader reader(this);
  reader.Start(range.low, range.high, /*down=*/false);
  uint64_t erased = 0;
  absl::Status status;
  while (status.ok() && !reader.done()) {
    const KeyCut before = reader.at();
    std::vector<std::string> found;
    const auto take = [&found](LeafEntry& entry) {
      found.push_back(std::move(entry.key));
      return true;
    };
    status = context.expired() ? context.DeadlineError("erasing a range")
                               : reader.Read(context, kEraseLeaves, take);
    // Somebody else may have erased them since, so that it is not known who has.
    if (status.ok() && !found.empty()) {
      status = EraseKeys(context, found, &erased, keys != nullptr ? &keys->perhaps : nullptr);
    }
    const absl::Status told = note(erased, status.ok() ? reader.at() : before);
    if (status.ok()) status = told;
  }
  return status;
}

}  // namespace pando
