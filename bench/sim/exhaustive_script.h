// The operations of exhaustive crashes: inserts, an update, conditional writes and erases of one
// client, so chosen by the seed that the tree grows to all its levels and shrinks again; and what
// others do meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/history/history.h"
#include "bench/sim/exhaustive_crashes.h"

namespace pando {

class ExhaustiveScript {
 public:
  explicit ExhaustiveScript(const ExhaustiveOptions& options);

  size_t size() const { return operations_.size(); }
  const history::Operation& at(size_t i) const { return operations_[i]; }
  std::vector<history::Operation> Before(size_t i) const {
    return {operations_.begin(), operations_.begin() + static_cast<ptrdiff_t>(i)};
  }
  // What goes on beside the i-th in its session: the operations that follow it, mostly at other
  // leaves, and puts and a get of the keys next to its own, mostly at the same leaf.
  std::vector<history::Operation> Beside(size_t i, uint64_t stamp) const;
  history::State StateBefore(size_t i) const;
  // Of exhaustive runs: where they begin, and what is written there.
  std::vector<size_t> RunVictims() const;
  std::vector<history::Operation> RunAt(size_t i, size_t length, uint64_t stamp) const;
  // Of range deletes: where they begin, and an erase of each key of the range, ascending.
  std::vector<size_t> EraseVictims() const;
  std::vector<history::Operation> EraseAt(size_t i, size_t length) const;
  // What others do afterwards: read, write, erase and scan all over.
  std::vector<history::Operation> Readers(uint64_t stamp) const;
  std::vector<history::Operation> Writers(uint64_t stamp) const;

 private:
  std::vector<std::string> keys_;
  std::vector<history::Operation> operations_;
};

// `value`: what a put, insert, update or replace stores, or an upsert appends, as decimal digits.
history::Operation MakeOperation(history::OperationKind kind, std::string key, uint64_t value);

}  // namespace pando
