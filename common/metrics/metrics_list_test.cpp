// The list in README.md is what is exported, and every counter of the programs is in it.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "common/metrics/client_metrics.h"
#include "common/metrics/memory_metrics.h"
#include "gtest/gtest.h"
#include "memory/memory_server.h"
#include "memory/test_support.h"

namespace pando {
namespace {

std::string KindName(MetricInfo::Kind kind) {
  return kind == MetricInfo::kCounter ? "counter" : "gauge";
}

// Name to "kind: help" of the rows of the README's tables.
std::map<std::string, std::string> Documented() {
  std::map<std::string, std::string> rows;
  const auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::ifstream file(programs / METRICS_README);
  const std::regex row("^\\| `(pando_[a-z_]+)` \\| (counter|gauge) \\| (.*) \\|$");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row)) rows[match[1]] = match[2].str() + ": " + match[3].str();
  }
  return rows;
}

}  // namespace

namespace memory {
namespace {

// A server's counters, all of them.
struct TestServer {
  PlainMemory memory;
  std::unique_ptr<MemoryServer> server = *MemoryServer::Create(memory.memory(), {});
};

TEST(MetricsList, IsTheDocumentedOne) {
  const TestServer test;
  const CounterList counters = test.server->Counters();
  const MetricList of_memory = MemoryMetrics(test.server->Info(), counters);
  EXPECT_EQ(of_memory.size(), counters.size() + 3) << "a counter has no metric";
  std::map<std::string, std::string> exported;
  for (const MetricList& list : {of_memory, ClientMetrics({})}) {
    for (const Metric& metric : list) {
      const bool fresh =
          exported.emplace(metric.info.name, KindName(metric.info.kind) + ": " + metric.info.help)
              .second;
      EXPECT_TRUE(fresh) << metric.info.name << " is there twice";
    }
  }
  EXPECT_EQ(exported, Documented());
}

TEST(MetricsList, NamesSayWhatTheyAre) {
  const TestServer test;
  for (const MetricList& list :
       {MemoryMetrics(test.server->Info(), test.server->Counters()), ClientMetrics({})}) {
    for (const Metric& metric : list) {
      const std::string name = metric.info.name;
      EXPECT_TRUE(name.starts_with("pando_")) << name;
      EXPECT_EQ(name.ends_with("_total"), metric.info.kind == MetricInfo::kCounter) << name;
    }
  }
}

TEST(MetricsList, ValuesAreThoseOfTheCounters) {
  ClientStats stats;
  stats.fabric.reads = 3;
  stats.fabric.bytes_written = 5;
  stats.tree.cache_bytes = 7;
  stats.tree.redone = 9;
  stats.owned.forwarded = 11;
  stats.owned.log_used_bytes = 13;
  std::map<std::string, double> values;
  for (const Metric& metric : ClientMetrics(stats)) values[metric.info.name] = metric.value;
  EXPECT_EQ(values["pando_client_reads_total"], 3);
  EXPECT_EQ(values["pando_client_written_bytes_total"], 5);
  EXPECT_EQ(values["pando_client_cache_bytes"], 7);
  EXPECT_EQ(values["pando_client_redone_total"], 9);
  EXPECT_EQ(values["pando_client_forwarded_total"], 11);
  EXPECT_EQ(values["pando_client_log_used_bytes"], 13);
  double sum = 0;
  for (const auto& [name, value] : values) sum += value;
  EXPECT_EQ(sum, 48);  // and no other

  ServerInfo info = {};
  info.free_bytes = 11;
  info.used_bytes = 13;
  const MetricList metrics = MemoryMetrics(info, {{"calls", 17}, {"of_a_later_release", 1}});
  ASSERT_EQ(metrics.size(), 4u);
  EXPECT_EQ(metrics[1].value, 11);
  EXPECT_EQ(metrics[2].value, 13);
  EXPECT_STREQ(metrics[3].info.name, "pando_memory_calls_total");
  EXPECT_EQ(metrics[3].value, 17);
}

}  // namespace
}  // namespace memory
}  // namespace pando
