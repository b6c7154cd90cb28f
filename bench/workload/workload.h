// A workload: the mix of operations, read from a data file (bench/workloads/*.json).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/random.h"

namespace pando::bench {

enum class OperationKind : uint8_t { kRead, kUpdate, kInsert, kScan, kDelete, kRmw };
inline constexpr size_t kOperationKinds = 6;
inline constexpr std::array<OperationKind, kOperationKinds> kAllOperationKinds = {
    OperationKind::kRead, OperationKind::kUpdate, OperationKind::kInsert,
    OperationKind::kScan, OperationKind::kDelete, OperationKind::kRmw};
std::string_view OperationName(OperationKind kind);

struct Workload {
  std::string name;
  std::string description;
  std::array<double, kOperationKinds> shares{};  // sum 1
  std::string distribution = "uniform";
  uint32_t scan_length_min = 1, scan_length_max = 100;
  std::string scan_lengths = "uniform";  // between those two, or zipfian: the shortest most often
  bool preload = true;                   // false: the run starts with an empty tree
  bool upsert = false;  // updates are blind puts, so that deleted records come back

  double share(OperationKind kind) const { return shares[static_cast<size_t>(kind)]; }
  OperationKind Choose(Random* random) const;
  bool writes() const;
};

// InvalidArgument: not JSON, unknown members, shares that are negative or do not add up to 1.
absl::StatusOr<Workload> ParseWorkload(std::string_view text);

// InvalidArgument: of scan lengths the least is 0 or above the greatest, or they are drawn in a way
// that nobody knows.
absl::Status CheckScanLengths(const Workload& workload);

struct WorkloadFile {
  std::string name;  // of the workload: the file's without its end
  std::string path, text;
  bool is_json() const;  // else it is one of YCSB's property files (properties.h)
};
// `name` is a file (with a slash or ".json"), or the name of one of the files that come with Pando,
// in workloads/ next to the program or share/pando/workloads of its prefix; if none has that name,
// of a file in the current directory. NotFound lists those of Pando, or says that the file cannot
// be read; InvalidArgument: it is far too long for one. A byte order mark is left out.
absl::StatusOr<WorkloadFile> ReadWorkloadFile(std::string_view name);

// Of a file that is_json().
absl::StatusOr<Workload> ParseWorkload(const WorkloadFile& file);
absl::StatusOr<Workload> LoadWorkload(std::string_view name);

}  // namespace pando::bench
