// pando-node-loop: how fast this machine copies and searches random nodes, in the JSON style of
// pando-ycsb.
#include <gflags/gflags.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "bench/host/host_info.h"
#include "bench/node_loop/node_loop.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "common/program/host_memory.h"

DEFINE_uint64(records, 1'000'000, "records in the nodes");
DEFINE_double(duration, 2, "seconds");
DEFINE_uint64(seed, 1, "of the random records");
DEFINE_string(json, "", "file for the result");

namespace {

const pando::ProgramInfo kProgram = {
    .name = "pando-node-loop",
    .summary =
        "pando-node-loop --records=N --duration=SECONDS\n\nCopies and searches random 1 KiB "
        "nodes: the yardstick for pando-ycsb on shm.",
    .source = __FILE__};

}  // namespace

int main(int argc, char** argv) {
  using namespace pando::bench;
  pando::ParseCommandLine(argc, argv, kProgram);
  if (FLAGS_records == 0 || FLAGS_records > uint64_t{1} << 36) {
    pando::ExitWithUsageError(kProgram, "--records is 1 to 2^36");
  }
  if (!(FLAGS_duration > 0 && FLAGS_duration <= 1e6)) {
    pando::ExitWithUsageError(kProgram, "--duration is above 0");
  }
  const absl::Status fits =
      pando::CheckMemory(NodeArray::NodesOf(FLAGS_records) * NodeArray::kNodeBytes,
                         pando::ReadHostMemory(/*numa_node=*/-1));
  if (!fits.ok()) {
    const std::string why(fits.message());
    std::fprintf(stderr, "pando-node-loop: %s: use fewer --records\n", why.c_str());
    return 1;
  }
  NodeArray nodes(FLAGS_records);
  RunNodeLoop(&nodes, 0.1, FLAGS_seed + 1);  // every page has been touched
  const NodeLoopResult result = RunNodeLoop(&nodes, FLAGS_duration, FLAGS_seed);
  if (result.found != result.operations) {
    std::fprintf(stderr, "pando-node-loop: a record was not found\n");
    return 1;
  }
  absl::PrintF("%s nodes of %d bytes: %s operations/s\n",
               pando::FormatCount(static_cast<double>(nodes.node_count())), NodeArray::kNodeBytes,
               pando::FormatCount(result.rate()));
  if (FLAGS_json.empty()) return 0;
  const HostInfo host = GetHostInfo();
  const nlohmann::json json = {{"config",
                                {{"records", FLAGS_records},
                                 {"nodes", nodes.node_count()},
                                 {"node_bytes", NodeArray::kNodeBytes},
                                 {"seed", FLAGS_seed},
                                 {"commit", host.commit},
                                 {"compiler", host.compiler},
                                 {"kernel", host.kernel},
                                 {"cpu", host.cpu}}},
                               {"run",
                                {{"seconds", result.seconds},
                                 {"operations", result.operations},
                                 {"cpu_seconds", result.cpu_seconds},
                                 {"throughput", result.rate()}}}};
  std::ofstream out(FLAGS_json, std::ios::trunc);
  out << json.dump(2) << '\n';
  out.close();
  if (!out) {
    std::fprintf(stderr, "pando-node-loop: cannot write %s\n", FLAGS_json.c_str());
    return 1;
  }
  return 0;
}
