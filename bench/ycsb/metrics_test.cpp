// Scrapes real processes: their counters grow with the work they do.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "common/metrics/test_http.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

using ::testing::HasSubstr;

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("TMPDIR", folder_.path().c_str(), 1); }
  void TearDown() override { Stop(&processes_, 10'000); }

  std::string File(const std::string& name) const { return folder_.path() / name; }
  std::string Log(const std::string& name) const { return Tail(File(name), 100'000); }

  Process& Start(const std::string& program, std::vector<std::string> flags,
                 const std::string& log) {
    flags.insert(flags.begin(), ProgramFolder() / program);
    processes_.push_back(*Process::Spawn({.arguments = flags, .log_file = File(log)}));
    return processes_.back();
  }

  // A memory server; the port of its metrics.
  int StartMemoryServer() {
    const Process& process = Start(
        "pando-memory",
        {absl::StrCat("--registry=", File("registry")), "--memory=64M", "--metrics_address=0"},
        "memory-log");
    const std::string words = "metrics on port ";
    for (size_t at; !processes_.back().HasEnded(); usleep(10'000)) {
      const std::string log = Log("memory-log");
      at = log.find(words);
      if (at != std::string::npos && log.find('\n', at) != std::string::npos) {
        return std::atoi(log.c_str() + at + words.size());
      }
    }
    ADD_FAILURE() << *process.ending() << Log("memory-log");
    return 0;
  }

  // The value of a metric as a scrape shows it; -1: it is not there.
  static double Value(int port, const std::string& metric) {
    const std::string answer = HttpGet(port, "/metrics");
    const size_t at = answer.find(absl::StrCat("\n", metric, "{"));
    if (at == std::string::npos) return -1;
    return std::atof(answer.c_str() + answer.find('}', at) + 1);
  }

  // A port that was free a moment ago.
  static int FreePort() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    close(fd);
    return ntohs(address.sin_port);
  }

  const TemporaryFolder folder_ = *TemporaryFolder::Create();
  std::vector<Process> processes_;
};

TEST_F(MetricsTest, CountersGrowWithTheWork) {
  const int memory_port = StartMemoryServer();
  ASSERT_NE(memory_port, 0);
  EXPECT_EQ(Value(memory_port, "pando_memory_joins_total"), 0);
  EXPECT_EQ(Value(memory_port, "pando_memory_used_bytes"), 0);
  EXPECT_EQ(Value(memory_port, "pando_memory_region_bytes"), 64 << 20);

  const int client_port = FreePort();
  Process& ycsb =
      Start("pando-ycsb",
            {absl::StrCat("--registry=", File("registry")), "--workload=a", "--records=2000",
             "--duration=600", absl::StrCat("--metrics_address=", client_port)},
            "ycsb-log");
  const auto wait_for_more = [&](const std::string& metric, double than) {
    double value = Value(client_port, metric);
    for (; value <= than && !ycsb.HasEnded(); value = Value(client_port, metric)) usleep(10'000);
    EXPECT_GT(value, than) << metric << Log("ycsb-log");
    return value;
  };
  for (const char* metric : {"pando_client_reads_total", "pando_client_lock_attempts_total",
                             "pando_client_written_bytes_total"}) {
    wait_for_more(metric, wait_for_more(metric, 1'000));
  }
  EXPECT_THAT(HttpGet(client_port, "/metrics"),
              HasSubstr("pando_client_reads_total{compute_server=\"0\"}"));
  EXPECT_EQ(Value(memory_port, "pando_memory_joins_total"), 1);
  EXPECT_EQ(Value(memory_port, "pando_memory_clients"), 1);
  EXPECT_EQ(Value(memory_port, "pando_memory_trees_created_total"), 1);
  EXPECT_GT(Value(memory_port, "pando_memory_nodes_granted_total"), 0);
  EXPECT_GT(Value(memory_port, "pando_memory_used_bytes"), 0);
  const double calls = Value(memory_port, "pando_memory_calls_total");
  ycsb.Signal(SIGTERM);
  EXPECT_TRUE(ycsb.WaitFor(20'000));
  EXPECT_GT(Value(memory_port, "pando_memory_calls_total"), calls);  // it left
}

TEST_F(MetricsTest, APortThatIsTakenEndsTheProgram) {
  const int taken = StartMemoryServer();
  Process& second =
      Start("pando-memory",
            {absl::StrCat("--registry=", File("other")), absl::StrCat("--metrics_address=", taken)},
            "second-log");
  EXPECT_TRUE(second.WaitFor(20'000));
  EXPECT_EQ(*second.ending(), "exited with 1");
  EXPECT_THAT(Log("second-log"), HasSubstr("metrics: cannot listen on 127.0.0.1:"));

  Process& ycsb = Start("pando-ycsb",
                        {absl::StrCat("--registry=", File("registry")), "--records=1000",
                         absl::StrCat("--metrics_address=", taken)},
                        "ycsb-log");
  EXPECT_TRUE(ycsb.WaitFor(60'000));
  EXPECT_THAT(Log("ycsb-log"), HasSubstr("metrics: cannot listen on 127.0.0.1:"));
  Process& wrong = Start("pando-ycsb", {"--metrics_address=x"}, "wrong-log");
  EXPECT_TRUE(wrong.WaitFor(20'000));
  EXPECT_EQ(*wrong.ending(), "exited with 2");
  EXPECT_THAT(Log("wrong-log"), HasSubstr("'x' is no address for metrics"));
}

}  // namespace
}  // namespace pando::bench
