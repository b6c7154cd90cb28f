#include "common/fabric/nic/nic_profile.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {

using Json = nlohmann::json;

// What values a constant may have.
enum class Range : uint8_t {
  kNotNegative,
  kPositive,
  kWhole,
  kPowerOfTwo
};  // all but the first: > 0

struct Field {
  const char* group;
  const char* name;
  std::function<double&(NicProfile&)> at;
  Range range = Range::kNotNegative;
};

// The constants of all groups; every one of them has to be in a file.
const std::vector<Field>& Fields() {
#define PANDO_FIELD(group, name, ...)                                                    \
  {                                                                                      \
#group, #name, [](NicProfile & p) -> double& { return p.group.name; }, ##__VA_ARGS__ \
  }
  static const auto* const fields = new std::vector<Field>{
      PANDO_FIELD(cpu, post_chain_ns),
      PANDO_FIELD(cpu, post_verb_ns),
      PANDO_FIELD(cpu, completion_ns),
      PANDO_FIELD(cpu, search_node_ns),
      PANDO_FIELD(cpu, operation_ns),
      PANDO_FIELD(cpu, record_ns),
      PANDO_FIELD(cpu, wake_ns),
      PANDO_FIELD(nic, doorbell_ns),
      PANDO_FIELD(nic, fetch_chain_ns),
      PANDO_FIELD(nic, fetch_payload_ns),
      PANDO_FIELD(nic, inline_bytes),
      PANDO_FIELD(nic, send_ns),
      PANDO_FIELD(nic, receive_ns),
      PANDO_FIELD(nic, queue_pair_ns),
      PANDO_FIELD(nic, completion_ns),
      PANDO_FIELD(link, gbits, Range::kPositive),
      PANDO_FIELD(link, header_bytes),
      PANDO_FIELD(link, packet_bytes, Range::kPositive),
      PANDO_FIELD(link, propagation_ns),
      PANDO_FIELD(link, switch_ns),
      PANDO_FIELD(pcie, read_ns),
      PANDO_FIELD(pcie, gbits, Range::kPositive),
      PANDO_FIELD(atomics, buckets, Range::kPowerOfTwo),
      PANDO_FIELD(atomics, waiting_max, Range::kWhole),
      PANDO_FIELD(atomics, host_hold_ns),
      PANDO_FIELD(atomics, host_engine_ns),
      PANDO_FIELD(atomics, host_latency_ns),
      PANDO_FIELD(atomics, on_chip_hold_ns),
      PANDO_FIELD(atomics, on_chip_engine_ns),
      PANDO_FIELD(atomics, on_chip_latency_ns),
      PANDO_FIELD(atomics, on_chip_read_ns),
      PANDO_FIELD(calls, one_way_ns),
      PANDO_FIELD(calls, server_cpu_ns),
  };
#undef PANDO_FIELD
  return *fields;
}

constexpr const char* kGroups[] = {"cpu", "nic", "link", "pcie", "atomics", "calls"};
constexpr double kValueMax = 1e9;  // a second, a gigabyte: more is a slip
constexpr double kBucketsMax = 1 << 20;

absl::Status Bad(const std::string& field, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", field, "' ", std::string(what)));
}

absl::Status ParseConstant(const Json& json, const std::string& path, Range range, double* value) {
  if (!json.is_object()) return Bad(path, "is not an object with \"value\" and \"source\"");
  for (const auto& [member, unused] : json.items()) {
    if (member != "value" && member != "source") return Bad(path + "." + member, "is unknown");
  }
  const auto number = json.find("value");
  if (number == json.end()) return Bad(path + ".value", "is missing");
  if (!number->is_number()) return Bad(path + ".value", "is not a number");
  *value = number->get<double>();
  if (*value < 0) return Bad(path + ".value", "is negative");
  if (!(*value <= kValueMax)) return Bad(path + ".value", "is too large");
  if (range != Range::kNotNegative && *value == 0) return Bad(path + ".value", "is 0");
  if (range == Range::kWhole && *value != std::floor(*value)) {
    return Bad(path + ".value", "is not a whole number");
  }
  if (range == Range::kPowerOfTwo) {
    const bool whole = *value <= kBucketsMax && *value == std::floor(*value);
    const auto bits = whole ? static_cast<uint64_t>(*value) : 3;
    if ((bits & (bits - 1)) != 0) return Bad(path + ".value", "is not a power of two");
  }
  const auto source = json.find("source");
  if (source == json.end()) return Bad(path + ".source", "is missing");
  if (!source->is_string() || source->get_ref<const std::string&>().empty()) {
    return Bad(path + ".source", "is not a text");
  }
  return absl::OkStatus();
}

absl::Status ParseConstants(const Json& json, NicProfile* profile) {
  for (const char* group : kGroups) {
    if (!json.contains(group)) return Bad(group, "is missing");
    if (!json[group].is_object()) return Bad(group, "is not an object");
    for (const auto& [member, unused] : json[group].items()) {
      bool known = false;
      for (const Field& field : Fields()) {
        known = known || (field.group == std::string_view(group) && field.name == member);
      }
      if (!known) return Bad(absl::StrCat(group, ".", member), "is unknown");
    }
  }
  for (const Field& field : Fields()) {
    const std::string path = absl::StrCat(field.group, ".", field.name);
    const Json& group = json[field.group];
    if (!group.contains(field.name)) return Bad(path, "is missing");
    PANDO_RETURN_IF_ERROR(ParseConstant(group[field.name], path, field.range, &field.at(*profile)));
  }
  return absl::OkStatus();
}

// A whole number within [low, high].
template <typename T>
absl::Status ParseCount(const Json& json, const std::string& path, uint64_t low, uint64_t high,
                        T* value) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() < low || json.get<uint64_t>() > high) {
    return Bad(path, absl::StrCat("is not a whole number from ", low, " to ", high));
  }
  *value = static_cast<T>(json.get<uint64_t>());
  return absl::OkStatus();
}

absl::Status ParseText(const Json& json, const std::string& path, std::string* text) {
  if (!json.is_string() || json.get_ref<const std::string&>().empty()) {
    return Bad(path, "is not a text");
  }
  *text = json.get<std::string>();
  return absl::OkStatus();
}

absl::Status ParsePublished(const Json& json, const std::string& path,
                            NicProfile::Published* point) {
  constexpr uint64_t kThreadsMax = 1024, kBatchMax = 4096, kChainMax = 16, kBytesMax = 1 << 20;
  if (!json.is_object()) return Bad(path, "is not an object");
  for (const char* needed : {"verb", "unit", "value", "source"}) {
    if (!json.contains(needed)) return Bad(absl::StrCat(path, ".", needed), "is missing");
  }
  for (const auto& [member, value] : json.items()) {
    const std::string at = absl::StrCat(path, ".", member);
    absl::Status status;
    if (member == "verb") {
      status = ParseText(value, at, &point->verb);
    } else if (member == "unit") {
      status = ParseText(value, at, &point->unit);
    } else if (member == "source") {
      status = ParseText(value, at, &point->source);
    } else if (member == "on_chip" || member == "inline" || member == "window") {
      if (!value.is_boolean()) return Bad(at, "is not a truth value");
      (member == "on_chip"  ? point->on_chip
       : member == "window" ? point->window
                            : point->is_inline) = value.get<bool>();
    } else if (member == "threads") {
      status = ParseCount(value, at, 1, kThreadsMax, &point->threads);
    } else if (member == "batch") {
      status = ParseCount(value, at, 1, kBatchMax, &point->batch);
    } else if (member == "chain") {
      status = ParseCount(value, at, 1, kChainMax, &point->chain);
    } else if (member == "bytes") {
      status = ParseCount(value, at, 8, kBytesMax, &point->bytes);
      if (status.ok() && point->bytes % 8 != 0) return Bad(at, "is not a multiple of 8");
    } else if (member == "addresses") {
      status = ParseCount(value, at, 0, kBytesMax, &point->addresses);
    } else if (member == "value") {
      if (!value.is_number() || !(value.get<double>() > 0)) return Bad(at, "is not positive");
      point->value = value.get<double>();
    } else {
      return Bad(at, "is unknown");
    }
    PANDO_RETURN_IF_ERROR(status);
  }
  constexpr const char* kVerbs[] = {"read", "write", "cas", "lock"};
  if (std::find(std::begin(kVerbs), std::end(kVerbs), point->verb) == std::end(kVerbs)) {
    return Bad(path + ".verb", "is not read, write, cas or lock");
  }
  if (point->unit != "mops" && point->unit != "us") return Bad(path + ".unit", "is not mops or us");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NicProfile> NicProfile::Parse(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  NicProfile profile;
  for (const auto& [member, value] : json.items()) {
    if (member == "name") {
      PANDO_RETURN_IF_ERROR(ParseText(value, member, &profile.name));
    } else if (member == "description") {
      PANDO_RETURN_IF_ERROR(ParseText(value, member, &profile.description));
    } else if (member == "published") {
      if (!value.is_array()) return Bad(member, "is not a list");
      for (size_t i = 0; i < value.size(); ++i) {
        PANDO_RETURN_IF_ERROR(ParsePublished(value[i], absl::StrCat("published[", i, "]"),
                                             &profile.published.emplace_back()));
      }
    } else if (std::find(std::begin(kGroups), std::end(kGroups), member) == std::end(kGroups)) {
      return Bad(member, "is unknown");
    }
  }
  if (profile.name.empty()) return Bad("name", "is missing");
  PANDO_RETURN_IF_ERROR(ParseConstants(json, &profile));
  return profile;
}

absl::StatusOr<NicProfile> NicProfile::Load(const std::filesystem::path& file) {
  constexpr size_t kFileBytesMax = 1 << 20;
  std::ifstream stream(file);
  std::string text(kFileBytesMax, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.is_open() || stream.bad()) {
    return absl::NotFoundError(absl::StrCat("cannot read ", file.string()));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  absl::StatusOr<NicProfile> profile = Parse(text);
  if (!profile.ok()) return Annotate(profile.status(), file.string());
  return profile;
}

}  // namespace pando
