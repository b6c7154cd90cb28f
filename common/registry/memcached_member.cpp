#include "common/registry/memcached_member.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {

// Others change the index at the same time; each of them makes progress.
constexpr int kIndexTriesMax = 1000;
// A cluster without members leaves nothing behind, one that is stopped for a moment its index.
constexpr int64_t kIndexExpiryFactor = 10;

// Letters, digits and "_-." stay, all else becomes %xx: what clusters are called differs where they
// do.
std::string EncodeName(std::string_view name) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  std::string encoded;
  for (const char c : name) {
    if (kPlain.find(c) != std::string_view::npos) {
      encoded.push_back(c);
    } else {
      absl::StrAppend(&encoded, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return encoded;
}

}  // namespace

std::string MemcachedKeyPrefix(std::string_view cluster) {
  return absl::StrCat("pando1/", EncodeName(cluster), "/");
}
std::string MemcachedServerKey(const std::string& prefix, ServerId server) {
  return absl::StrCat(prefix, "server-", server);
}
std::string MemcachedIndexKey(const std::string& prefix) { return prefix + "servers"; }

absl::Status ExplainBadValue(const absl::Status& status, const std::string& key) {
  return absl::Status(
      status.code(),
      absl::StrCat("memcached's key ", key, ": ", status.message(),
                   "; something else writes there: use another cluster name, or delete the key"));
}

MemcachedMember::MemcachedMember(MemcachedClient* client, std::string key_prefix,
                                 RegistryEntry entry, int64_t expiry_s)
    : client_(client),
      key_(MemcachedServerKey(key_prefix, entry.location.id)),
      index_key_(MemcachedIndexKey(key_prefix)),
      entry_(std::move(entry)),
      bytes_(EncodeEntry(entry_)),
      expiry_s_(expiry_s) {}

absl::Status MemcachedMember::TakenError(const RegistryEntry& by) const {
  return absl::AlreadyExistsError(
      absl::StrCat("a live memory server ", entry_.location.id, " is announced there by process ",
                   by.process.pid, " of host ", by.host.name, " at ", by.location.address,
                   ": stop it, or give this one another id"));
}

absl::StatusOr<MemcachedMember::Claim> MemcachedMember::TryPublish() {
  PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> seen, client_->Get(key_));
  bool published = false;
  if (!seen.has_value()) {
    PANDO_ASSIGN_OR_RETURN(published, client_->Add(key_, bytes_, expiry_s_));
  } else {
    const absl::StatusOr<RegistryEntry> other = ParseEntry(seen->bytes);
    if (!other.ok()) return ExplainBadValue(other.status(), key_);
    if (other->incarnation == entry_.incarnation) {
      published = true;  // by an attempt that was not answered
    } else if (other->host.SameProcesses(entry_.host)) {
      if (!HasEnded(other->process)) return TakenError(*other);
      PANDO_ASSIGN_OR_RETURN(published, client_->Replace(*seen, bytes_, expiry_s_));
    } else {
      if (other_cas_ != 0 && other_cas_ != seen->cas) return TakenError(*other);  // it renews
      other_cas_ = seen->cas;
    }
  }
  if (!published) return Claim::kWait;
  const absl::Status joined = JoinIndex();
  if (joined.ok()) return Claim::kPublished;
  Withdraw();
  return joined;
}

absl::Status MemcachedMember::Renew() {
  // The entry may change or go between two operations, but not for ever.
  constexpr int kTriesMax = 10;
  for (int i = 0; i < kTriesMax; ++i) {
    PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> seen, client_->Get(key_));
    bool published = false;
    if (!seen.has_value()) {
      PANDO_ASSIGN_OR_RETURN(published, client_->Add(key_, bytes_, expiry_s_));
    } else {
      const absl::StatusOr<RegistryEntry> there = ParseEntry(seen->bytes);
      if (!there.ok()) return ExplainBadValue(there.status(), key_);
      if (there->incarnation != entry_.incarnation) return TakenError(*there);
      PANDO_ASSIGN_OR_RETURN(published, client_->Replace(*seen, bytes_, expiry_s_));
    }
    if (published) return JoinIndex();
  }
  return absl::UnavailableError(
      absl::StrCat("memcached's key ", key_, " changes all the time, or is not kept"));
}

absl::Status MemcachedMember::JoinIndex() {
  const ServerId id = entry_.location.id;
  for (int i = 0; i < kIndexTriesMax; ++i) {
    PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> seen, client_->Get(index_key_));
    const int64_t expiry_s = kIndexExpiryFactor * expiry_s_;
    bool done = false;
    if (!seen.has_value()) {
      PANDO_ASSIGN_OR_RETURN(done, client_->Add(index_key_, EncodeIndex({id}), expiry_s));
    } else {
      absl::StatusOr<std::vector<ServerId>> servers = ParseIndex(seen->bytes);
      if (!servers.ok()) return ExplainBadValue(servers.status(), index_key_);
      const auto at = std::lower_bound(servers->begin(), servers->end(), id);
      if (at != servers->end() && *at == id) {
        PANDO_ASSIGN_OR_RETURN(done, client_->Touch(index_key_, expiry_s));
      } else {
        servers->insert(at, id);
        PANDO_ASSIGN_OR_RETURN(done, client_->Replace(*seen, EncodeIndex(*servers), expiry_s));
      }
    }
    if (done) return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("memcached's key ", index_key_, " changes all the time, or is not kept"));
}

void MemcachedMember::Withdraw() {
  const absl::StatusOr<std::optional<MemcachedValue>> seen = client_->Get(key_);
  if (!seen.ok() || !seen->has_value()) return;
  const absl::StatusOr<RegistryEntry> there = ParseEntry((*seen)->bytes);
  if (!there.ok() || there->incarnation != entry_.incarnation) return;
  // If it fails, the entry expires.
  client_->Remove(**seen).status().IgnoreError();
}

}  // namespace pando
