// One server's presence in a memcached: how its entry gets there, stays there and goes. No thread,
// no waiting but for the memcached itself; MemcachedRegistry's announcement drives it.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/registry/entry.h"
#include "common/registry/memcached_client.h"

namespace pando {

// "pando1/CLUSTER/"; what stands behind it.
std::string MemcachedKeyPrefix(std::string_view cluster);
std::string MemcachedServerKey(const std::string& prefix, ServerId server);
std::string MemcachedIndexKey(const std::string& prefix);

// What is wrong with the value of `key`, and what to do about it.
absl::Status ExplainBadValue(const absl::Status& status, const std::string& key);

class MemcachedMember {
 public:
  // `client` outlives this.
  MemcachedMember(MemcachedClient* client, std::string key_prefix, RegistryEntry entry,
                  int64_t expiry_s);

  enum class Claim {
    kPublished,
    kWait,  // an entry of another host is there: try again, until it changes or is gone
  };
  // One attempt to publish the entry. AlreadyExists: another live process has the id. Others as
  // MemcachedClient and ParseEntry().
  absl::StatusOr<Claim> TryPublish();

  // Makes the entry last again, or publishes it again if it is gone. AlreadyExists: another
  // process has it. Unlike when first publishing it does not matter whether that one still lives.
  absl::Status Renew();

  // Takes the entry away if it is this member's.
  void Withdraw();

 private:
  absl::Status JoinIndex();
  absl::Status TakenError(const RegistryEntry& by) const;

  MemcachedClient* const client_;
  const std::string key_, index_key_;
  const RegistryEntry entry_;
  const std::string bytes_;
  const int64_t expiry_s_;
  uint64_t other_cas_ = 0;  // of an entry of another host that was there before; 0: none
};

}  // namespace pando
