// For tests of windows (rules N): one leaf in remote memory, written line by line, and readers that
// take each of its lines at any moment between two of them.
//
// A key goes through its values in order, each another one. So if a reader has returned one before
// another reader begins, that one returns no earlier value. Lines of one WRITE land in the order in
// which they are added here, which tests turn round.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/test_images.h"
#include "common/wire/window.h"

namespace pando {

class WindowStage {
 public:
  using Value = std::optional<std::string>;  // nothing: the key is not there

  WindowStage(const NodeLayout& layout, const TestImage& image, bool crc)
      : layout_(layout), crc_(crc), moments_{image} {}

  const NodeLayout& layout() const { return layout_; }
  const TestImage& memory() const { return moments_.back(); }
  size_t now() const { return moments_.size() - 1; }
  // The key's values in the order in which it has them, from the first moment on.
  void Expect(std::string key, std::vector<Value> values) {
    expected_[std::move(key)] = std::move(values);
  }

  // One WRITE. `upwards`: the order of its lines.
  void Write(const TestImage& from, const LineRun& run, bool upwards) {
    for (uint32_t i = 0; i < run.line_count; ++i) {
      moments_.push_back(memory());
      moments_.back().CopyLine(from, run.first_line + (upwards ? i : run.line_count - 1 - i));
    }
  }
  // The first `count` WRITEs: their sender dies then.
  void Write(const TestImage& from, const std::vector<LineRun>& runs, size_t count, bool upwards) {
    for (size_t i = 0; i < count; ++i) Write(from, runs[i], upwards);
  }

  // What a get finds that has taken line 0 at one moment, and the lines of the window up to the
  // `cut`th at another one, the others at a third. False: it has to READ the leaf.
  bool ReadWindow(const std::string& key, WindowPart part, size_t line0, size_t first,
                  size_t second, uint32_t cut, Value* value) const {
    TestImage image(layout_);
    std::memset(image.data(), 0xa5, image.size());
    image.CopyLine(moments_[line0], 0);
    uint32_t taken = 0;
    for (const uint32_t line : WindowLines(key, part)) {
      image.CopyLine(moments_[taken++ < cut ? first : second], line);
    }
    LeafMatch match;
    const WindowVerdict verdict =
        ClassifyWindow(image.data(), layout_, TestExpectation(key), crc_, &match, part);
    *value = ValueAt(image, match);
    return verdict == WindowVerdict::kFound || verdict == WindowVerdict::kAbsent;
  }
  // The same of who took line 0 and this part of the window at one moment, and then, where these
  // did not say it, all other lines at another.
  bool ReadRest(const std::string& key, WindowPart part, size_t first, size_t second,
                Value* value) const {
    TestImage image(moments_[second]);
    image.CopyLine(moments_[first], 0);
    for (const uint32_t line : WindowLines(key, part)) image.CopyLine(moments_[first], line);
    return Accepts(image, key, value);
  }
  // The same of who READs the leaf. False: torn, or elsewhere.
  bool ReadLeaf(const std::string& key, size_t first, size_t second, uint32_t cut,
                Value* value) const {
    TestImage image(moments_[first]);
    for (uint32_t line = cut; line < layout_.lines(); ++line) {
      image.CopyLine(moments_[second], line);
    }
    return Accepts(image, key, value);
  }

  // All readers of each expected key, at all moments. What the first wrong one says; "": all is
  // well.
  std::string Check() const {
    for (const auto& [key, values] : expected_) {
      std::vector<Read> reads;
      const auto add = [&](size_t begin, size_t end, const Value& value) {
        const auto at = std::find(values.begin(), values.end(), value);
        reads.push_back({begin, end, static_cast<size_t>(at - values.begin())});
      };
      Value value;
      const std::vector<size_t> at_line0 = MomentsOf({0});
      for (const WindowPart part : {WindowPart::kAll, WindowPart::kNear}) {
        const std::vector<uint32_t> window = WindowLines(key, part);
        const std::vector<size_t> at_window = MomentsOf(window);
        for (const size_t first : at_window) {
          for (const size_t second : at_window) {
            for (uint32_t cut = 1; cut <= (first == second ? 1 : window.size()); ++cut) {
              for (const size_t line0 : at_line0) {
                if (!ReadWindow(key, part, line0, first, second, cut, &value)) continue;
                add(std::min({first, second, line0}), std::max({first, second, line0}), value);
              }
            }
          }
        }
        for (size_t first = 0; first <= now(); ++first) {
          for (size_t second = first; second <= now(); ++second) {
            if (ReadRest(key, part, first, second, &value)) add(first, second, value);
          }
        }
      }
      for (size_t first = 0; first <= now(); ++first) {
        for (size_t second = 0; second <= now(); ++second) {
          for (uint32_t cut = 1; cut < (first == second ? 2 : layout_.lines()); ++cut) {
            if (!ReadLeaf(key, first, second, cut, &value)) continue;
            add(std::min(first, second), std::max(first, second), value);
          }
        }
      }
      const std::string problem = Judge(key, reads, values.size());
      if (!problem.empty()) return problem;
    }
    return "";
  }

 private:
  struct Read {
    size_t begin, end, value;
  };

  std::vector<uint32_t> WindowLines(const std::string& key, WindowPart part) const {
    const WindowRuns window = WindowOf(layout_, key, part);
    std::vector<uint32_t> lines;
    for (uint32_t i = 0; i < window.count; ++i) {
      for (uint32_t line = 0; line < window.runs[i].line_count; ++line) {
        lines.push_back(window.runs[i].first_line + line);
      }
    }
    return lines;
  }
  // The first and the last one of those at which these lines are as they are then: a reader in
  // between sees what they see, and says less of the order.
  std::vector<size_t> MomentsOf(const std::vector<uint32_t>& lines) const {
    const auto same = [&](size_t a, size_t b) {
      return std::all_of(lines.begin(), lines.end(),
                         [&](uint32_t line) { return moments_[a].SameLine(moments_[b], line); });
    };
    std::vector<size_t> moments;
    for (size_t at = 0; at <= now(); ++at) {
      const bool in_between = at > 0 && at < now() && same(at, at - 1) && same(at, at + 1);
      if (!in_between) moments.push_back(at);
    }
    return moments;
  }

  bool Accepts(const TestImage& image, const std::string& key, Value* value) const {
    LeafMatch match;
    const NodeVerdict verdict = Classify(image.data(), layout_, TestExpectation(key), crc_, &match);
    *value = ValueAt(image, match);
    return verdict == NodeVerdict::kAccepted;
  }
  Value ValueAt(const TestImage& image, const LeafMatch& match) const {
    if (match.slot < 0) return std::nullopt;
    std::string value;
    ReadSlotValue(image.data(), layout_, static_cast<uint32_t>(match.slot), &value);
    return value;
  }

  static std::string Judge(const std::string& key, const std::vector<Read>& reads,
                           size_t value_count) {
    // When the first one ended that returned this value or a later one.
    std::vector<size_t> known(value_count, SIZE_MAX);
    for (const Read& read : reads) {
      if (read.value == value_count) return "'" + key + "' has a value that nobody stored";
      for (size_t i = 0; i <= read.value; ++i) known[i] = std::min(known[i], read.end);
    }
    for (const Read& read : reads) {
      if (read.value + 1 < value_count && known[read.value + 1] <= read.begin) {
        return "'" + key + "' has an older value than somebody was told before";
      }
    }
    return "";
  }

  const NodeLayout layout_;
  const bool crc_;
  std::vector<TestImage> moments_;  // after each line
  std::map<std::string, std::vector<Value>> expected_;
};

// A whole node as a split or a repair writes it: line 0, then packets of `packet_lines` lines; as a
// merge does: line 0 last; or packets from the first line on.
enum class NodeOrder { kLine0First, kLine0Last, kAscending };
inline std::vector<LineRun> NodeWrites(const NodeLayout& layout, NodeOrder order,
                                       uint32_t packet_lines) {
  const uint32_t packet_bytes = std::max(packet_lines, layout.lines_per_group()) * kLineBytes;
  const LineRuns body = NodeRuns(layout, order == NodeOrder::kAscending ? 0 : 1, packet_bytes);
  std::vector<LineRun> writes(body.begin(), body.end());
  if (order == NodeOrder::kLine0First) writes.insert(writes.begin(), {0, 1});
  if (order == NodeOrder::kLine0Last) writes.push_back({0, 1});
  return writes;
}

}  // namespace pando
