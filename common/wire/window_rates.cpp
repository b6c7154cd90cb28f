// window_rates [OPERATIONS]: how many keys lie outside their windows, by layout (rules N): trees of
// leaves that grow by random puts, and others that keep their size while keys come and go.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/wire/test_images.h"
#include "common/wire/window.h"

namespace pando {
namespace {

constexpr size_t kKeys = 20'000;  // in a tree that is measured, and up to twice as many

struct Rates {
  uint64_t keys = 0, spilled = 0, homes = 0, flagged = 0;
};

class Leaves {
 public:
  explicit Leaves(const NodeLayout& layout) : layout_(layout) {
    leaves_.emplace("", TestLeaf(layout_, TestHeader(), {}));
  }

  void Put(const std::string& key) {
    auto at = Find(key);
    LeafEditor editor(at->second.data(), layout_, false);
    if (editor.used_slots() < layout_.entries_max() && editor.Put(key, "v")) {
      (void)editor.SealDirty(1 << 16);
      return;
    }
    Split(at);
    Put(key);
  }
  bool Erase(const std::string& key) {
    LeafEditor editor(Find(key)->second.data(), layout_, false);
    const bool erased = editor.Erase(key);
    (void)editor.SealDirty(1 << 16);
    return erased;
  }
  // Where a get of this key ends.
  void Look(const std::string& key, bool is_there, Rates* rates) {
    const TestImage& image = Find(key)->second;
    LeafMatch match;
    const WindowVerdict verdict =
        ClassifyWindow(image.data(), layout_, TestExpectation(key), false, &match);
    ++(is_there ? rates->keys : rates->homes);
    if (verdict == WindowVerdict::kFlagged) ++(is_there ? rates->spilled : rates->flagged);
  }

 private:
  using Map = std::map<std::string, TestImage>;

  Map::iterator Find(const std::string& key) { return std::prev(leaves_.upper_bound(key)); }

  void Split(Map::iterator at) {
    std::vector<LeafEntry> entries;
    PANDO_CHECK(ReadLeafEntries(at->second.data(), layout_, &entries));
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    const std::string separator = entries[entries.size() / 2].key;
    // As where a packet has all of a leaf (rule N5). Every key here is below the separator.
    FillLeaf(at->second.data(), layout_, std::span(entries).first(entries.size() / 2));
    SealNodeLevel(at->second.data(), at->second.data(), layout_, false);
    entries.erase(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(entries.size() / 2));
    leaves_.emplace(separator, TestLeaf(layout_, TestHeader(), entries));
  }

  const NodeLayout layout_;
  Map leaves_;
};

void Print(const char* what, const NodeLayout& layout, const Rates& rates) {
  std::printf("%3u/%-3u %s: %.2f %% of the keys outside, NotFound reads %.2f %% of the leaves\n",
              layout.key_bytes_max(), layout.value_bytes_max(), what,
              100.0 * static_cast<double>(rates.spilled) / static_cast<double>(rates.keys),
              100.0 * static_cast<double>(rates.flagged) / static_cast<double>(rates.homes));
}

void Measure(const NodeLayout& layout, uint64_t operations) {
  Random random(1);
  const auto new_key = [&] { return TestBytes(&random, std::min(layout.key_bytes_max(), 16u)); };
  Rates growing, steady;
  for (uint64_t done = 0; done < operations / 2;) {
    Leaves leaves(layout);
    std::vector<std::string> keys;
    for (; keys.size() < 2 * kKeys; ++done) {
      keys.push_back(new_key());
      leaves.Put(keys.back());
      if (keys.size() <= kKeys) continue;
      leaves.Look(keys[random.Uniform(keys.size())], true, &growing);
      leaves.Look(new_key(), false, &growing);
    }
  }
  Leaves leaves(layout);
  std::vector<std::string> keys;
  while (keys.size() < kKeys) leaves.Put(keys.emplace_back(new_key()));
  for (uint64_t done = 0; done < operations / 2; done += 2) {
    std::string& key = keys[random.Uniform(keys.size())];
    PANDO_CHECK(leaves.Erase(key));
    key = new_key();
    leaves.Put(key);
    leaves.Look(keys[random.Uniform(keys.size())], true, &steady);
    leaves.Look(new_key(), false, &steady);
  }
  Print("grows", layout, growing);
  Print("changes", layout, steady);
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  const uint64_t operations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  for (const auto& [key, value] : {std::pair{8u, 8u}, std::pair{24u, 8u}, std::pair{60u, 8u}}) {
    pando::Measure(pando::TestLayout(key, value, 0, true), operations);
  }
}
