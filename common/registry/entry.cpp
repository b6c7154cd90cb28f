#include "common/registry/entry.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/byte_codec.h"
#include "common/wire/crc32c.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are written as they lie");

constexpr size_t kHostNameBytesMax = 255;
constexpr size_t kBootIdBytesMax = 64;

// Magic and version stand first in every version.
struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t reserved;
  uint32_t body_bytes;
  uint32_t body_crc;
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 16);

std::string WithHeader(uint32_t magic, std::string_view body) {
  const Header header = {magic, kEntryVersion, 0, static_cast<uint32_t>(body.size()),
                         Crc32c(body.data(), body.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(body);
  return bytes;
}

// The body.
absl::StatusOr<std::string_view> CheckHeader(uint32_t magic, const char* what,
                                             std::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(
        absl::StrCat("a value of ", bytes.size(), " bytes is too short for a registry's ", what));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string_view body = bytes.substr(sizeof(header));
  if (header.magic != magic) {
    return absl::DataLossError(
        absl::StrCat("the value is no registry's ", what, " (wrong magic number)"));
  }
  if (header.version != kEntryVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the registry's ", what, " has version ", header.version, ", this side knows version ",
        kEntryVersion, ": use the same release of Pando everywhere, or another cluster name"));
  }
  if (header.body_bytes != body.size()) {
    return absl::DataLossError(absl::StrCat("the registry's ", what, " says ", header.body_bytes,
                                            " bytes and has ", body.size()));
  }
  if (header.reserved != 0 || header.body_crc != Crc32c(body.data(), body.size())) {
    return absl::DataLossError(absl::StrCat("the registry's ", what, " fails its checksum"));
  }
  return body;
}

bool IsOneLine(std::string_view text, size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max &&
         text.find_first_of(std::string_view("\n\0", 2)) == std::string_view::npos;
}

}  // namespace

absl::Status CheckEntryText(const ServerLocation& location) {
  if (!IsOneLine(location.address, kAddressBytesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("server ", location.id, ": an address has 1 to ",
                                                   kAddressBytesMax, " bytes, all on one line"));
  }
  if (!IsOneLine(location.fabric, kFabricNameBytesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("server ", location.id,
                                                   ": a fabric's name has 1 to ",
                                                   kFabricNameBytesMax, " bytes, all on one line"));
  }
  return absl::OkStatus();
}

std::string EncodeEntry(const RegistryEntry& entry) {
  PANDO_CHECK_OK(CheckEntryText(entry.location));
  PANDO_CHECK(IsOneLine(entry.host.name, kHostNameBytesMax));
  PANDO_CHECK_LE(entry.host.boot_id.size(), kBootIdBytesMax);
  wire::ByteWriter writer;
  writer.Put(entry.location.id)
      .Put(entry.incarnation)
      .Put(entry.process.pid)
      .Put(entry.process.start_ticks)
      .Put(entry.host.pid_namespace)
      .PutString(entry.host.boot_id)
      .PutString(entry.host.name)
      .PutString(entry.location.fabric)
      .PutString(entry.location.address);
  return WithHeader(kEntryMagic, writer.Take());
}

absl::StatusOr<RegistryEntry> ParseEntry(std::string_view bytes) {
  PANDO_ASSIGN_OR_RETURN(const std::string_view body, CheckHeader(kEntryMagic, "entry", bytes));
  wire::ByteReader reader(body);
  RegistryEntry entry;
  reader.Take(&entry.location.id);
  reader.Take(&entry.incarnation);
  reader.Take(&entry.process.pid);
  reader.Take(&entry.process.start_ticks);
  reader.Take(&entry.host.pid_namespace);
  reader.TakeString(kBootIdBytesMax, &entry.host.boot_id);
  reader.TakeString(kHostNameBytesMax, &entry.host.name);
  reader.TakeString(kFabricNameBytesMax, &entry.location.fabric);
  reader.TakeString(kAddressBytesMax, &entry.location.address);
  if (!reader.Done()) return absl::DataLossError("the registry's entry lacks fields, or has more");
  if (!CheckEntryText(entry.location).ok() || !IsOneLine(entry.host.name, kHostNameBytesMax)) {
    return absl::DataLossError("the registry's entry holds no address");
  }
  return entry;
}

std::string EncodeIndex(const std::vector<ServerId>& servers) {
  PANDO_CHECK(std::adjacent_find(servers.begin(), servers.end(), std::greater_equal<>()) ==
              servers.end());
  wire::ByteWriter writer;
  for (const ServerId server : servers) writer.Put(server);
  return WithHeader(kIndexMagic, writer.Take());
}

absl::StatusOr<std::vector<ServerId>> ParseIndex(std::string_view bytes) {
  PANDO_ASSIGN_OR_RETURN(const std::string_view body, CheckHeader(kIndexMagic, "index", bytes));
  wire::ByteReader reader(body);
  std::vector<ServerId> servers;
  servers.reserve(body.size() / sizeof(ServerId));
  while (reader.remaining() > 0) {
    ServerId server = 0;
    if (!reader.Take(&server) || (!servers.empty() && server <= servers.back())) {
      return absl::DataLossError("the registry's index is not in order");
    }
    servers.push_back(server);
  }
  return servers;
}

}  // namespace pando
