#include "common/registry/memcached_client.h"

#include <libmemcached/memcached.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr uint64_t kWaitMs = 1'000;
constexpr size_t kKeysPerRequest = 256;
constexpr size_t kValueBytesMax = 1 << 20;  // memcached's own limit
// The first second that memcached takes for a date (the 31st of January 1970), not for a span:
// over.
constexpr time_t kExpired = 60 * 60 * 24 * 30 + 1;

// libmemcached takes nonsense, or a connection that breaks, for the end of the answer to a "get",
// but remembers the error.
memcached_return_t ResultOfGet(memcached_st* memcached, memcached_return_t result) {
  if (result != MEMCACHED_SUCCESS && result != MEMCACHED_END && result != MEMCACHED_NOTFOUND) {
    return result;
  }
  const memcached_return_t error = memcached_last_error(memcached);
  return error == MEMCACHED_END || error == MEMCACHED_NOTFOUND ? MEMCACHED_SUCCESS : error;
}

}  // namespace

// What libmemcached holds for us; thrown away after a failure, so that no late answer is ever taken
// for the answer to another question.
class MemcachedClient::Connection {
 public:
  Connection(const std::string& host, uint16_t port) : memcached_(memcached_create(nullptr)) {
    PANDO_CHECK(memcached_ != nullptr);
    const std::pair<memcached_behavior_t, uint64_t> behaviours[] = {
        {MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1},           {MEMCACHED_BEHAVIOR_TCP_NODELAY, 1},
        {MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, kWaitMs}, {MEMCACHED_BEHAVIOR_POLL_TIMEOUT, kWaitMs},
        {MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 0},
    };
    for (const auto& [behaviour, value] : behaviours) {
      memcached_behavior_set(memcached_, behaviour, value);
    }
    memcached_server_add(memcached_, host.c_str(), port);
  }
  ~Connection() { memcached_free(memcached_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Whether a memcached answers; a "get" says better than other requests why not. Nobody has this
  // key.
  memcached_return_t Check() {
    constexpr std::string_view kKey = "pando1/is-this-a-memcached";
    size_t bytes = 0;
    uint32_t flags = 0;
    memcached_return_t result = MEMCACHED_SUCCESS;
    std::free(memcached_get(memcached_, kKey.data(), kKey.size(), &bytes, &flags, &result));
    return ResultOfGet(memcached_, result);
  }

  memcached_st* get() { return memcached_; }

 private:
  memcached_st* const memcached_;
};

MemcachedClient::MemcachedClient(std::string host, uint16_t port)
    : host_(std::move(host)), port_(port) {}
MemcachedClient::~MemcachedClient() = default;

absl::Status MemcachedClient::Fail(int result) {
  const auto code = static_cast<memcached_return_t>(result);
  const int error = memcached_last_error_errno(connection_->get());
  const std::string detail = code == MEMCACHED_ERRNO && error != 0
                                 ? std::strerror(error)
                                 : memcached_strerror(connection_->get(), code);
  connection_.reset();
  const std::string where = absl::StrCat("memcached at ", host_, ":", port_);
  switch (code) {
    case MEMCACHED_TIMEOUT:
      return absl::UnavailableError(absl::StrCat(where, " does not answer within ", kWaitMs,
                                                 " ms: is it stuck, or behind a firewall?"));
    case MEMCACHED_CONNECTION_FAILURE:
    case MEMCACHED_HOST_LOOKUP_FAILURE:
    case MEMCACHED_ERRNO:
    case MEMCACHED_SERVER_MARKED_DEAD:
    case MEMCACHED_SERVER_TEMPORARILY_DISABLED:
      return absl::UnavailableError(absl::StrCat("no ", where, ": is it running? (", detail, ")"));
    case MEMCACHED_SERVER_ERROR:
    case MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE:
    case MEMCACHED_E2BIG:
      return absl::ResourceExhaustedError(absl::StrCat(where, " has no room (", detail, ")"));
    default:
      return absl::UnavailableError(
          absl::StrCat(where, " is none, or broken: its answer is no memcached's (", detail, ")"));
  }
}

absl::StatusOr<bool> MemcachedClient::Run(const std::function<int(Connection&)>& operation) {
  std::lock_guard lock(mutex_);
  for (;;) {
    const bool fresh = connection_ == nullptr;
    if (fresh) {
      connection_ = std::make_unique<Connection>(host_, port_);
      const memcached_return_t checked = connection_->Check();
      if (checked != MEMCACHED_SUCCESS) return Fail(checked);
    }
    const auto result = static_cast<memcached_return_t>(operation(*connection_));
    switch (result) {
      case MEMCACHED_SUCCESS:
      case MEMCACHED_STORED:
        return true;
      case MEMCACHED_NOTSTORED:
      case MEMCACHED_DATA_EXISTS:
      case MEMCACHED_DATA_DOES_NOT_EXIST:
      case MEMCACHED_NOTFOUND:
        return false;
      default:
        break;
    }
    absl::Status failed = Fail(result);
    // An old connection is broken if its memcached was started again since.
    if (fresh || result == MEMCACHED_TIMEOUT) return failed;
  }
}

namespace {

// Of at most kKeysPerRequest keys. Adds what is there to `values`.
memcached_return_t GetSome(memcached_st* memcached, std::span<const std::string> keys,
                           std::vector<MemcachedValue>* values) {
  const char* texts[kKeysPerRequest];
  size_t sizes[kKeysPerRequest];
  for (size_t i = 0; i < keys.size(); ++i) {
    PANDO_CHECK_LE(keys[i].size(), kMemcachedKeyBytesMax);
    texts[i] = keys[i].data();
    sizes[i] = keys[i].size();
  }
  memcached_return_t result = memcached_mget(memcached, texts, sizes, keys.size());
  if (result != MEMCACHED_SUCCESS) return result;
  while (memcached_result_st* got = memcached_fetch_result(memcached, nullptr, &result)) {
    // libmemcached takes any number for a length.
    const size_t bytes = memcached_result_length(got);
    const char* const value = memcached_result_value(got);
    const bool sane = bytes <= kValueBytesMax && (bytes == 0 || value != nullptr);
    if (sane) {
      values->push_back({{memcached_result_key_value(got), memcached_result_key_length(got)},
                         {bytes == 0 ? "" : value, bytes},
                         memcached_result_cas(got)});
    }
    memcached_result_free(got);
    if (!sane) return MEMCACHED_PROTOCOL_ERROR;
  }
  return ResultOfGet(memcached, result);
}

}  // namespace

absl::StatusOr<std::vector<MemcachedValue>> MemcachedClient::GetMany(
    const std::vector<std::string>& keys) {
  std::vector<MemcachedValue> values;
  const absl::StatusOr<bool> got = Run([&](Connection& connection) {
    values.clear();
    for (size_t first = 0; first < keys.size(); first += kKeysPerRequest) {
      const size_t count = std::min(kKeysPerRequest, keys.size() - first);
      const memcached_return_t result =
          GetSome(connection.get(), std::span(keys).subspan(first, count), &values);
      if (result != MEMCACHED_SUCCESS) return result;
    }
    return MEMCACHED_SUCCESS;
  });
  if (!got.ok()) return got.status();
  return values;
}

absl::StatusOr<std::optional<MemcachedValue>> MemcachedClient::Get(const std::string& key) {
  PANDO_ASSIGN_OR_RETURN(std::vector<MemcachedValue> values, GetMany({key}));
  if (values.empty()) return std::optional<MemcachedValue>();
  return std::optional<MemcachedValue>(std::move(values.front()));
}

absl::StatusOr<bool> MemcachedClient::Add(const std::string& key, std::string_view bytes,
                                          int64_t expiry_s) {
  return Run([&](Connection& connection) {
    return memcached_add(connection.get(), key.data(), key.size(), bytes.data(), bytes.size(),
                         expiry_s, 0);
  });
}

absl::StatusOr<bool> MemcachedClient::Replace(const MemcachedValue& seen, std::string_view bytes,
                                              int64_t expiry_s) {
  return Run([&](Connection& connection) {
    return memcached_cas(connection.get(), seen.key.data(), seen.key.size(), bytes.data(),
                         bytes.size(), expiry_s, 0, seen.cas);
  });
}

absl::StatusOr<bool> MemcachedClient::Remove(const MemcachedValue& seen) {
  // There is no conditional delete: the value is replaced by one that has expired already.
  return Replace(seen, "", kExpired);
}

absl::StatusOr<bool> MemcachedClient::Touch(const std::string& key, int64_t expiry_s) {
  return Run([&](Connection& connection) {
    return memcached_touch(connection.get(), key.data(), key.size(), expiry_s);
  });
}

}  // namespace pando
