// Which keys this compute server owns, as far as it has heard: what --route=owner asks for, as if a
// service had sent each request to the owner of its key (Client::OwnerOf()).
//
// OwnKeys is thread-safe. A view of it is one thread's, and sees at once what has been learnt.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pando/owners.h"

namespace pando::bench {

class OwnKeys {
 public:
  // low <= key < high; high empty: to the end.
  struct Range {
    std::string low, high;
  };

  // All ranges of the tree, sorted (Client::ListRanges()). Those of `compute_server` are its own.
  void Learn(const std::vector<RangeInfo>& all, uint16_t compute_server);

 private:
  friend class OwnKeysView;
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<Range>> ranges_ = std::make_shared<std::vector<Range>>();
  std::atomic<uint64_t> version_{0};
};

class OwnKeysView {
 public:
  // `keys` outlives it.
  explicit OwnKeysView(const OwnKeys* keys) : keys_(*keys) {}
  // It owns no key, or has not heard of one.
  bool empty();
  bool Has(std::string_view key);

 private:
  void Refresh();

  const OwnKeys& keys_;
  uint64_t version_ = 0;
  std::shared_ptr<const std::vector<OwnKeys::Range>> ranges_ =
      std::make_shared<std::vector<OwnKeys::Range>>();
};

}  // namespace pando::bench
