#include "common/registry/memcached_registry.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"
#include "common/registry/entry.h"
#include "common/registry/memcached_member.h"
#include "common/registry/private_directory.h"
#include "common/wire/crc32c.h"

namespace pando {
namespace {

constexpr size_t kClusterBytesMax = 64;

uint64_t NewIncarnation() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Renews the entry until it is destroyed.
class MemcachedAnnouncement final : public Announcement {
 public:
  MemcachedAnnouncement(const MemcachedRegistryOptions& options, std::string registry_name,
                        RegistryEntry entry)
      : registry_name_(std::move(registry_name)),
        server_(entry.location.id),
        renew_ms_(options.renew_ms),
        client_(options.host, options.port),
        member_(&client_, MemcachedKeyPrefix(options.cluster), std::move(entry), options.expiry_s) {
  }
  ~MemcachedAnnouncement() override {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    member_.Withdraw();
  }

  absl::Status status() const override {
    std::lock_guard lock(mutex_);
    return status_;
  }

  // Publishes the entry and begins to renew it. Waits for an entry of another host to be renewed or
  // to go until `deadline_ns`.
  absl::Status Start(int64_t deadline_ns);

 private:
  void Run();
  void Note(const absl::Status& status);

  const std::string registry_name_;
  const ServerId server_;
  const int64_t renew_ms_;
  MemcachedClient client_;
  MemcachedMember member_;  // of Start(), then of the thread, then of the destructor

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  absl::Status status_;
  std::thread thread_;
};

absl::Status MemcachedAnnouncement::Start(int64_t deadline_ns) {
  for (;;) {
    PANDO_ASSIGN_OR_RETURN(const MemcachedMember::Claim claim, member_.TryPublish());
    if (claim == MemcachedMember::Claim::kPublished) break;
    if (RealClock().NowNs() >= deadline_ns) {
      return absl::AlreadyExistsError(
          "another host's entry is there, and memcached does not forget it: is another server of "
          "this id being started?");
    }
    const timespec pause = {0, 100 * kMillisecondNs};
    nanosleep(&pause, nullptr);
  }
  absl::StatusOr<std::thread> thread = StartQuietThread("pando-announce", [this] { Run(); });
  if (!thread.ok()) {
    (void)member_.Withdraw();
    return thread.status();
  }
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

void MemcachedAnnouncement::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, std::chrono::milliseconds(renew_ms_), [this] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    const absl::Status renewed = member_.Renew();
    Note(renewed);
    if (absl::IsAlreadyExists(renewed)) return;
    lock.lock();
  }
}

// Each change is said once.
void MemcachedAnnouncement::Note(const absl::Status& status) {
  absl::Status before = status;
  {
    std::lock_guard lock(mutex_);
    std::swap(before, status_);
  }
  if (before.code() == status.code()) return;
  if (status.ok()) {
    PANDO_LOG(INFO) << "memory server " << server_ << " is announced in " << registry_name_
                    << " again";
  } else if (absl::IsAlreadyExists(status)) {
    PANDO_LOG(ERROR) << "memory server " << server_ << " is not announced in " << registry_name_
                     << " any more, as its id was taken while this process was stopped: " << status;
  } else {
    PANDO_LOG(WARNING) << "memory server " << server_ << " cannot be found in " << registry_name_
                       << " for now; connected clients go on: " << status;
  }
}

absl::StatusOr<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", std::string(text), "' is not a port"));
  }
  return port;
}

// "HOST", "HOST:PORT", "[IPv6]:PORT".
absl::Status ParseAuthority(std::string_view text, MemcachedRegistryOptions* options) {
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return absl::InvalidArgumentError("there is no ']'");
    options->host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    options->host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  constexpr std::string_view kNeverInNames(" \t\r\n\0/", 6);
  if (options->host.empty() || options->host.size() > 255 ||
      options->host.find_first_of(kNeverInNames) != std::string::npos) {
    return absl::InvalidArgumentError("there is no host");
  }
  if (rest.empty()) return absl::OkStatus();
  if (!rest.starts_with(':')) return absl::InvalidArgumentError("a port follows the host");
  PANDO_ASSIGN_OR_RETURN(options->port, ParsePort(rest.substr(1)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MemcachedRegistryOptions> ParseMemcachedName(std::string_view name) {
  MemcachedRegistryOptions options;
  std::string_view rest = name;
  if (rest.starts_with(kMemcachedScheme)) rest.remove_prefix(kMemcachedScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  absl::Status status = ParseAuthority(rest.substr(0, slash), &options);
  options.cluster = rest.substr(std::min(slash + 1, rest.size()));
  if (status.ok() && (options.cluster.empty() || options.cluster.size() > kClusterBytesMax)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("the cluster's name has 1 to ", kClusterBytesMax, " bytes"));
  }
  if (status.ok()) return options;
  return absl::InvalidArgumentError(absl::StrCat(
      "registry '", std::string(name), "': ", status.message(),
      "; write \"memcached://HOST:PORT/CLUSTER\", for example memcached://10.0.0.1:11211/words"));
}

MemcachedRegistry::MemcachedRegistry(MemcachedRegistryOptions options)
    : options_(std::move(options)),
      name_(absl::StrCat(std::string(kMemcachedScheme), options_.host, ":", options_.port, "/",
                         options_.cluster)),
      client_(options_.host, options_.port) {}

absl::StatusOr<std::unique_ptr<Registry>> MemcachedRegistry::Open(
    MemcachedRegistryOptions options) {
  auto registry = std::make_unique<MemcachedRegistry>(std::move(options));
  // A mistyped address shows here.
  const std::string prefix = MemcachedKeyPrefix(registry->options_.cluster);
  PANDO_RETURN_IF_ERROR(registry->client_.Get(MemcachedIndexKey(prefix)).status());
  return registry;
}

absl::StatusOr<std::unique_ptr<Announcement>> MemcachedRegistry::Announce(
    const ServerLocation& location) {
  PANDO_RETURN_IF_ERROR(CheckEntryText(location));
  RegistryEntry entry = {.location = location,
                         .incarnation = NewIncarnation(),
                         .host = options_.this_host,
                         .process = ThisProcess()};
  auto announcement = std::make_unique<MemcachedAnnouncement>(options_, name_, std::move(entry));
  constexpr int64_t kMemcachedsRoundingS = 2;
  const int64_t deadline_ns =
      RealClock().NowNs() + (options_.expiry_s + kMemcachedsRoundingS) * kSecondNs;
  const absl::Status started = announcement->Start(deadline_ns);
  if (!started.ok()) return Annotate(started, "registry " + name_);
  return announcement;
}

absl::StatusOr<std::vector<ServerLocation>> MemcachedRegistry::List(
    std::vector<absl::Status>* bad) {
  const std::string prefix = MemcachedKeyPrefix(options_.cluster);
  const std::string index_key = MemcachedIndexKey(prefix);
  PANDO_ASSIGN_OR_RETURN(const std::optional<MemcachedValue> index, client_.Get(index_key));
  if (!index.has_value()) return std::vector<ServerLocation>();
  const absl::StatusOr<std::vector<ServerId>> ids = ParseIndex(index->bytes);
  if (!ids.ok()) return ExplainBadValue(ids.status(), index_key);
  std::vector<std::string> keys;
  for (const ServerId id : *ids) keys.push_back(MemcachedServerKey(prefix, id));
  PANDO_ASSIGN_OR_RETURN(const std::vector<MemcachedValue> values, client_.GetMany(keys));
  std::vector<ServerLocation> locations;
  for (const MemcachedValue& value : values) {
    absl::StatusOr<RegistryEntry> entry = ParseEntry(value.bytes);
    if (entry.ok() && MemcachedServerKey(prefix, entry->location.id) != value.key) {
      entry = absl::DataLossError("the registry's entry is another server's");
    }
    if (!entry.ok()) {
      const absl::Status why = ExplainBadValue(entry.status(), value.key);
      if (bad == nullptr) return why;
      bad->push_back(why);
      continue;
    }
    if (entry->host.SameProcesses(options_.this_host) && HasEnded(entry->process)) continue;
    if (!entry->host.SameHost(options_.this_host)) entry->location.host = entry->host.name;
    locations.push_back(std::move(entry->location));
  }
  std::sort(locations.begin(), locations.end(),
            [](const ServerLocation& a, const ServerLocation& b) { return a.id < b.id; });
  return locations;
}

namespace {

// Of this user, on this host.
absl::StatusOr<std::string> SocketDirectory() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string directory = runtime != nullptr && *runtime != 0
                              ? absl::StrCat(runtime, "/pando-sockets")
                              : absl::StrCat("/tmp/pando-", geteuid());
  const absl::Status opened =
      PrivateDirectory::Open(directory, "directory for sockets", /*make=*/true).status();
  if (absl::IsPermissionDenied(opened)) {
    return absl::PermissionDeniedError(
        absl::StrCat(opened.message(), " (XDG_RUNTIME_DIR says where)"));
  }
  PANDO_RETURN_IF_ERROR(opened);
  return directory;
}

}  // namespace

absl::StatusOr<std::string> MemcachedRegistry::IdentityKeyPath(std::string_view fabric) const {
  if (fabric != "shm") return std::string();
  PANDO_ASSIGN_OR_RETURN(const std::string directory, SocketDirectory());
  // However servers of one cluster write the memcached's address: it is one key.
  const uint32_t checksum = Crc32c(options_.cluster.data(), options_.cluster.size());
  return absl::StrCat(directory, "/identity-", absl::Hex(checksum, absl::kZeroPad8), ".key");
}

absl::StatusOr<std::string> MemcachedRegistry::SocketPath(ServerId server) const {
  PANDO_ASSIGN_OR_RETURN(const std::string directory, SocketDirectory());
  // Two clusters of one name, of two memcacheds, must not meet; the checksum tells them apart.
  const uint32_t checksum = Crc32c(name_.data(), name_.size());
  std::string path = absl::StrCat(directory, "/server-", server, "-",
                                  absl::Hex(checksum, absl::kZeroPad8), ".sock");
  if (path.size() > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", path, " has ", path.size(), " bytes; a Unix socket takes at ",
                     "most ", kSocketPathBytesMax, ": set XDG_RUNTIME_DIR to a shorter directory"));
  }
  return path;
}

}  // namespace pando
