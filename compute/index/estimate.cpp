// The size of a tree from some of its leaves. A sample goes from the root to a leaf, at each node
// to any child with the same probability; what it finds there counts for as many leaves as the
// product of the children that it chose from. The mean of that over samples has no bias, however
// unequal the nodes are (Knuth, Estimating the efficiency of backtrack programs, 1975). Samples are
// spread: each has a part of the interval [0, 1) of its own, a number from there decides at all
// levels. How far off the mean may be is taken from the differences of neighbours.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/value_cell.h"
#include "compute/index/descend.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {

constexpr int kReadsMin = 8;
constexpr double kConfidence = 1.96;  // standard errors on each side: 19 of 20
// Nodes without a separator, behind one that has one.
constexpr int kSiblingsMax = 16;

struct Child {
  Reference node;
  std::string low, high;  // what the parents know; high empty: the end
};

class Estimate {
 public:
  Estimate(OperationContext& context, TreeContext& tree, int reads_max)
      : context_(context), tree_(tree), reads_max_(reads_max) {}
  absl::StatusOr<SizeEstimate> Run();

 private:
  // Where a sample came through. As the next sample often goes through the same nodes, they are
  // kept.
  struct Step {
    Child from;
    size_t nodes = 0;
    std::vector<Child> children;
  };
  struct Sum {
    double keys = 0, key_bytes = 0, value_bytes = 0, cells_bytes = 0, leaves = 0, nodes = 0;
  };

  // Of an entry's value, and of the cell that it lies in, if it does.
  struct Sizes {
    uint64_t value = 0, cell = 0;
  };

  Sizes SizesOf(const LeafEntry& entry) const;
  absl::Status ReadStep(uint8_t level, const Child& place);
  absl::Status Sample(double position);
  absl::Status TakeLeaves(const Child& place, double weight, Sum* sum);
  // The nodes in the place's interval: one, unless separators are missing.
  template <typename Visit>
  absl::Status ForEachNode(uint8_t level, const Child& place, Visit visit);
  absl::Status ReadAt(uint8_t level, Reference* node, std::string_view key, LocalBuffer image);

  OperationContext& context_;
  TreeContext& tree_;
  const int reads_max_;
  RootRecord root_;
  std::vector<Step> path_;  // by level; of the last sample
  Sum sums_;
  size_t samples_ = 0;
  double last_keys_ = 0, differences_ = 0;  // of samples side by side, squared
};

absl::Status Estimate::ReadAt(uint8_t level, Reference* node, std::string_view key,
                              LocalBuffer image) {
  PANDO_ASSIGN_OR_RETURN(const NodeVerdict first,
                         ReadNode(context_, tree_, *node, level, key, image));
  if (first == NodeVerdict::kAccepted) return absl::OkStatus();
  Descent descent(context_, tree_, key, level);
  while (true) {
    PANDO_RETURN_IF_ERROR(descent.Find());
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadNode(context_, tree_, descent.node(), level, key, image));
    if (verdict == NodeVerdict::kAccepted) {
      *node = descent.node();
      return absl::OkStatus();
    }
    descent.Report(verdict,
                   verdict == NodeVerdict::kMovedRight ? RightOf(image.data) : Reference{});
  }
}

Estimate::Sizes Estimate::SizesOf(const LeafEntry& entry) const {
  if (!tree_.entry.shape.has_cells) return {.value = entry.value.size()};
  const std::optional<StoredValue> stored = ParseStored(entry.value);
  if (!stored.has_value()) return {};  // damaged; a check says so
  if (!stored->reference.has_value()) return {.value = stored->inlined.size()};
  const uint32_t bytes = stored->reference->value_bytes;
  return {.value = bytes, .cell = uint64_t{CellLines(entry.key.size(), bytes)} * kLineBytes};
}

template <typename Visit>
absl::Status Estimate::ForEachNode(uint8_t level, const Child& place, Visit visit) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  Reference node = place.node;
  std::string key = place.low;
  for (int i = 0; i <= kSiblingsMax; ++i) {
    if (i > 0 && context_.expired()) return context_.DeadlineError("estimating a tree's size");
    PANDO_RETURN_IF_ERROR(ReadAt(level, &node, key, image.buffer()));
    PANDO_RETURN_IF_ERROR(visit(image.data()));
    FenceScratch scratch;
    key = HighFence(image.data(), tree_.layout, &scratch);
    node = RightOf(image.data());
    if (key.empty() || (!place.high.empty() && key >= place.high)) break;
  }
  return absl::OkStatus();
}

absl::Status Estimate::TakeLeaves(const Child& place, double weight, Sum* sum) {
  std::vector<LeafEntry> entries;
  return ForEachNode(0, place, [&](const std::byte* image) {
    // Two entries of one key: torn in a way that will not be so for long. It counts as empty.
    if (!ReadLeafEntries(image, tree_.layout, &entries)) entries.clear();
    sum->leaves += weight;
    sum->nodes += weight;
    sum->keys += weight * static_cast<double>(entries.size());
    for (const LeafEntry& entry : entries) {
      sum->key_bytes += weight * static_cast<double>(entry.key.size());
      const Sizes sizes = SizesOf(entry);
      sum->value_bytes += weight * static_cast<double>(sizes.value);
      sum->cells_bytes += weight * static_cast<double>(sizes.cell);
    }
    return absl::OkStatus();
  });
}

absl::Status Estimate::ReadStep(uint8_t level, const Child& place) {
  Step& step = path_[level];
  if (step.nodes > 0 && step.from.node == place.node) return absl::OkStatus();
  step = {.from = place};
  return ForEachNode(level, place, [&](const std::byte* image) {
    InternalNode node;
    PANDO_RETURN_IF_ERROR(DecodeInternal(image, tree_.layout, &node));
    ++step.nodes;
    step.children.push_back({node.header.leftmost, node.header.low, node.header.high});
    for (Separator& entry : node.entries) {
      step.children.back().high = entry.key;
      step.children.push_back({entry.child, std::move(entry.key), node.header.high});
    }
    return absl::OkStatus();
  });
}

absl::Status Estimate::Sample(double position) {
  Child place{root_.root, "", ""};
  double weight = 1;
  Sum sum;
  for (uint8_t level = root_.level; level > 0; --level) {
    PANDO_RETURN_IF_ERROR(ReadStep(level, place));
    const Step& step = path_[level];
    sum.nodes += weight * static_cast<double>(step.nodes);
    const auto choices = static_cast<double>(step.children.size());
    const double choice = std::min(std::floor(position * choices), choices - 1);
    position = position * choices - choice;
    weight *= choices;
    place = step.children[static_cast<size_t>(choice)];
  }
  PANDO_RETURN_IF_ERROR(TakeLeaves(place, weight, &sum));
  for (double Sum::*const part : {&Sum::keys, &Sum::key_bytes, &Sum::value_bytes, &Sum::cells_bytes,
                                  &Sum::leaves, &Sum::nodes}) {
    sums_.*part += sum.*part;
  }
  if (samples_++ > 0) differences_ += (sum.keys - last_keys_) * (sum.keys - last_keys_);
  last_keys_ = sum.keys;
  return absl::OkStatus();
}

absl::StatusOr<SizeEstimate> Estimate::Run() {
  PANDO_ASSIGN_OR_RETURN(root_, ReadRoot(context_, tree_));
  path_.resize(size_t{root_.level} + 1);
  size_t samples = std::max(1, (reads_max_ - 1) / (root_.level + 1));
  // Few leaves: each is taken once.
  bool all = root_.level == 0;
  if (all) samples = 1;
  if (root_.level == 1) {
    PANDO_RETURN_IF_ERROR(ReadStep(1, {root_.root, "", ""}));
    all = path_[1].children.size() <= samples;
    if (all) samples = path_[1].children.size();
  }
  const auto n = static_cast<double>(samples);
  for (size_t i = 0; i < samples; ++i) {
    if (i > 0 && context_.expired()) return context_.DeadlineError("estimating a tree's size");
    const double within = all ? 0.5 : context_.session.random().NextDouble();
    PANDO_RETURN_IF_ERROR(Sample((static_cast<double>(i) + within) / n));
  }
  const auto mean = [n](double sum) { return static_cast<uint64_t>(std::llround(sum / n)); };
  SizeEstimate estimate{.keys = mean(sums_.keys),
                        .key_bytes = mean(sums_.key_bytes),
                        .value_bytes = mean(sums_.value_bytes),
                        .leaves = mean(sums_.leaves),
                        .nodes_bytes = mean(sums_.nodes * tree_.layout.node_bytes()),
                        .cells_bytes = mean(sums_.cells_bytes)};
  if (all) return estimate;
  const double keys = sums_.keys / n;
  // What is seen nowhere in n samples may still be a share of 1/n.
  const double variance = differences_ / (2 * std::max(1.0, n - 1));
  const double error = keys == 0 ? 1 : kConfidence * std::sqrt(variance / n) / keys;
  estimate.relative_error = std::max(error, 1 / n);
  return estimate;
}

}  // namespace

absl::StatusOr<SizeEstimate> EstimateTreeSize(OperationContext& context, TreeContext& tree,
                                              int reads_max) {
  if (reads_max < kReadsMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("reads_max is ", reads_max, "; an estimate takes at least ", kReadsMin));
  }
  return Estimate(context, tree, reads_max).Run();
}

}  // namespace pando
