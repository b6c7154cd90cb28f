#include "bench/workload/workload.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/host/data_files.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

// Shares may be written with a few digits.
constexpr double kShareSlack = 1e-6;
constexpr uint64_t kScanLengthLimit = 1'000'000;
// Of a file: beyond any workload, so that a device does not fill the memory.
constexpr size_t kFileBytesMax = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

absl::Status ParseShares(const Json& operations, Workload* workload) {
  double sum = 0;
  for (const auto& [name, share] : operations.items()) {
    bool known = false;
    for (const OperationKind kind : kAllOperationKinds) {
      if (name != OperationName(kind)) continue;
      known = true;
      if (!share.is_number() || share.get<double>() < 0) {
        return absl::InvalidArgumentError(absl::StrCat("the share of '", name, "' is no share"));
      }
      workload->shares[static_cast<size_t>(kind)] = share.get<double>();
      sum += share.get<double>();
    }
    if (!known) return absl::InvalidArgumentError(absl::StrCat("unknown operation '", name, "'"));
  }
  if (std::abs(sum - 1) > kShareSlack) {
    return absl::InvalidArgumentError(absl::StrCat("the shares add up to ", sum, ", not to 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.is_open() || stream.bad()) {
    std::error_code error;
    return absl::NotFoundError(
        absl::StrCat("cannot read the workload ", file.string(),
                     std::filesystem::is_directory(file, error) ? ": it is a directory" : ""));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.string(), " is longer than a mebibyte: no workload"));
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace

std::string_view OperationName(OperationKind kind) {
  constexpr std::string_view kNames[] = {"read", "update", "insert", "scan", "delete", "rmw"};
  return kNames[static_cast<size_t>(kind)];
}

OperationKind Workload::Choose(Random* random) const {
  double point = random->NextDouble();
  OperationKind last = OperationKind::kRead;
  for (const OperationKind kind : kAllOperationKinds) {
    if (share(kind) == 0) continue;
    last = kind;
    if (point < share(kind)) return kind;
    point -= share(kind);
  }
  return last;  // rounding
}

bool Workload::writes() const {
  return share(OperationKind::kRead) + share(OperationKind::kScan) < 1 - kShareSlack;
}

absl::StatusOr<Workload> ParseWorkload(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  Workload workload;
  const auto wrong = [](const std::string& member) {
    return absl::InvalidArgumentError(absl::StrCat("'", member, "' has the wrong type"));
  };
  bool has_operations = false;
  for (const auto& [member, value] : json.items()) {
    if (member == "name" || member == "description" || member == "distribution" ||
        member == "scan_lengths") {
      if (!value.is_string()) return wrong(member);
      (member == "name"           ? workload.name
       : member == "description"  ? workload.description
       : member == "scan_lengths" ? workload.scan_lengths
                                  : workload.distribution) = value.get<std::string>();
    } else if (member == "scan_length_min" || member == "scan_length_max") {
      if (!value.is_number_unsigned() || value.get<uint64_t>() - 1 >= kScanLengthLimit) {
        return wrong(member);
      }
      (member == "scan_length_min" ? workload.scan_length_min : workload.scan_length_max) =
          value.get<uint32_t>();
    } else if (member == "preload" || member == "upsert") {
      if (!value.is_boolean()) return wrong(member);
      (member == "preload" ? workload.preload : workload.upsert) = value.get<bool>();
    } else if (member == "operations") {
      if (!value.is_object()) return wrong(member);
      has_operations = true;
      PANDO_RETURN_IF_ERROR(ParseShares(value, &workload));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown member '", member, "'"));
    }
  }
  if (!has_operations) return absl::InvalidArgumentError("'operations' is missing");
  PANDO_RETURN_IF_ERROR(CheckScanLengths(workload));
  return workload;
}

absl::Status CheckScanLengths(const Workload& workload) {
  if (workload.scan_length_min == 0 || workload.scan_length_min > workload.scan_length_max ||
      workload.scan_length_max > kScanLengthLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("scans of ", workload.scan_length_min, " to ", workload.scan_length_max,
                     " records: lengths are 1 to ", kScanLengthLimit));
  }
  if (workload.scan_lengths != "uniform" && workload.scan_lengths != "zipfian") {
    return absl::InvalidArgumentError(
        absl::StrCat("scan lengths are uniform or zipfian, not '", workload.scan_lengths, "'"));
  }
  return absl::OkStatus();
}

bool WorkloadFile::is_json() const {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

absl::StatusOr<WorkloadFile> ReadWorkloadFile(std::string_view name) {
  absl::StatusOr<std::filesystem::path> found = FindDataFile("workload", "workloads", name);
  std::error_code error;
  if (absl::IsNotFound(found.status()) && std::filesystem::is_regular_file(name, error)) {
    found = std::filesystem::path(name);
  }
  PANDO_ASSIGN_OR_RETURN(const std::filesystem::path file, std::move(found));
  PANDO_ASSIGN_OR_RETURN(std::string text, ReadText(file));
  return WorkloadFile{file.stem().string(), file.string(), std::move(text)};
}

absl::StatusOr<Workload> ParseWorkload(const WorkloadFile& file) {
  absl::StatusOr<Workload> workload = ParseWorkload(std::string_view(file.text));
  if (!workload.ok()) return Annotate(workload.status(), file.path);
  if (workload->name.empty()) workload->name = file.name;
  return workload;
}

absl::StatusOr<Workload> LoadWorkload(std::string_view name) {
  PANDO_ASSIGN_OR_RETURN(const WorkloadFile file, ReadWorkloadFile(name));
  return ParseWorkload(file);
}

}  // namespace pando::bench
