// One connection to one memcached: the few operations that the registry needs, with statuses. Every
// operation ends within three seconds (connecting and each of two answers have a second); only the
// look-up of a name takes the resolver's own time. After a failure the next operation connects
// again, and one that finds its connection broken does so at once: it may then be executed twice.
//
// Whatever else than a memcached listens there gives a status. That the bytes of a memcached's
// answers are well-formed is libmemcached's to check, and it does not do so for every length: one
// that is out to do harm can crash this process.
//
// Statuses of all operations. Unavailable: nobody answers there, in time, or not a memcached.
// ResourceExhausted: the memcached has no room. The message names the server.
//
// Thread safety: thread-safe; operations wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

struct MemcachedValue {
  std::string key;
  std::string bytes;
  uint64_t cas = 0;  // another one after each change; never 0
};

class MemcachedClient {
 public:
  // Connects when first used.
  MemcachedClient(std::string host, uint16_t port);
  ~MemcachedClient();
  MemcachedClient(const MemcachedClient&) = delete;
  MemcachedClient& operator=(const MemcachedClient&) = delete;

  // Keys have 1 to kMemcachedKeyBytesMax printable characters, none a space.
  absl::StatusOr<std::optional<MemcachedValue>> Get(const std::string& key);
  // Those that are there, in any order.
  absl::StatusOr<std::vector<MemcachedValue>> GetMany(const std::vector<std::string>& keys);

  // These do nothing and are false where the condition does not hold. A value is forgotten
  // `expiry_s` seconds (up to one fewer) after it was last written or touched.
  // If there is no value:
  absl::StatusOr<bool> Add(const std::string& key, std::string_view bytes, int64_t expiry_s);
  // If the value is still the one that Get() saw:
  absl::StatusOr<bool> Replace(const MemcachedValue& seen, std::string_view bytes,
                               int64_t expiry_s);
  absl::StatusOr<bool> Remove(const MemcachedValue& seen);
  // If there is a value:
  absl::StatusOr<bool> Touch(const std::string& key, int64_t expiry_s);

 private:
  class Connection;

  // Runs the operation, whose result is a memcached_return_t. False: a condition does not hold.
  absl::StatusOr<bool> Run(const std::function<int(Connection&)>& operation);
  absl::Status Fail(int result);

  const std::string host_;
  const uint16_t port_;
  std::mutex mutex_;
  std::unique_ptr<Connection> connection_;
};

inline constexpr size_t kMemcachedKeyBytesMax = 250;

}  // namespace pando
