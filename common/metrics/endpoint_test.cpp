#include "common/metrics/endpoint.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bystander.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/metrics/test_http.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr MetricInfo kThings = {"pando_test_things_total", MetricInfo::kCounter, "Things done"};
constexpr MetricInfo kRoom = {"pando_test_room_bytes", MetricInfo::kGauge, "Bytes of room"};

TEST(MetricsEndpoint, AnswersWithWhatIsTrueNow) {
  std::atomic<int> things = 0, scrapes = 0;
  const auto endpoint = MetricsEndpoint::Start("0", {"server_id", "7"}, [&] {
    ++scrapes;
    return MetricList{{kThings, static_cast<double>(things)}, {kRoom, 1e12}};
  });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  EXPECT_EQ(scrapes, 0);  // nobody asked
  const std::string before = HttpGet(port, "/metrics");
  EXPECT_THAT(before, HasSubstr("200 OK"));
  EXPECT_THAT(before, HasSubstr("# HELP pando_test_things_total Things done\n"
                                "# TYPE pando_test_things_total counter\n"
                                "pando_test_things_total{server_id=\"7\"} 0\n"));
  EXPECT_THAT(before, HasSubstr("# TYPE pando_test_room_bytes gauge\n"
                                "pando_test_room_bytes{server_id=\"7\"} 1000000000000\n"));
  things = 42;
  EXPECT_THAT(HttpGet(port, "/metrics"),
              HasSubstr("pando_test_things_total{server_id=\"7\"} 42\n"));
  EXPECT_EQ(scrapes, 2);
  EXPECT_THAT(HttpGet(port, "/other"), HasSubstr("404"));
}

TEST(MetricsEndpoint, AnAddressThatIsTakenIsAStatus) {
  const auto source = [] { return MetricList(); };
  const auto first = MetricsEndpoint::Start("127.0.0.1:0", {"a", "b"}, source);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = MetricsEndpoint::Start(absl::StrCat((*first)->port()), {"a", "b"}, source);
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("cannot listen on 127.0.0.1:", (*first)->port())));
  const auto foreign = MetricsEndpoint::Start("192.0.2.1:0", {"a", "b"}, source);
  EXPECT_TRUE(absl::IsUnavailable(foreign.status()));
}

TEST(MetricsEndpoint, StopsAndStartsAgain) {
  const auto source = [] { return MetricList({{kThings, 1}}); };
  int port = 0;
  for (int i = 0; i < 3; ++i) {
    const auto endpoint = MetricsEndpoint::Start(absl::StrCat(port), {"a", "b"}, source);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    port = (*endpoint)->port();
    EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("pando_test_things_total{a=\"b\"} 1"));
  }
  EXPECT_THAT(HttpGet(port, "/metrics"), Not(HasSubstr("pando")));
}

// Somebody begins requests and never ends them, over and over: scrapes are answered all the same.
TEST(MetricsEndpoint, HalfOpenRequestsHoldUpNoScrape) {
  const Bystander bystander;
  const auto endpoint = MetricsEndpoint::Start("0", {"a", "b"}, [] {
    return MetricList({{kThings, 1}});
  });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  constexpr int kHalfOpen = 20;
  std::vector<UniqueFd> half_open;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kHalfOpen; ++i) half_open.push_back(HttpBegin(port, "GET /metrics HT"));
    const int64_t begun_ns = RealClock().NowNs();
    EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("pando_test_things_total"));
    EXPECT_LT(RealClock().NowNs() - begun_ns, bystander.Bound(kSecondNs));
  }
}

// Somebody sends bodies without end, a byte now and then.
TEST(MetricsEndpoint, BodiesHoldUpNoScrape) {
  const Bystander bystander;
  const auto endpoint = MetricsEndpoint::Start("0", {"a", "b"}, [] {
    return MetricList({{kThings, 1}});
  });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  for (const char* request :
       {"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        "GET /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    constexpr int kTrickling = 40;
    std::vector<UniqueFd> trickling;
    for (int i = 0; i < kTrickling; ++i) trickling.push_back(HttpBegin(port, request));
    std::atomic<bool> is_over = false;
    std::thread trickle([&] {
      while (!is_over) {
        for (const UniqueFd& fd : trickling) send(fd.get(), "1", 1, MSG_NOSIGNAL);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const int64_t begun_ns = RealClock().NowNs();
    EXPECT_THAT(HttpGet(port, "/metrics", 5), HasSubstr("pando_test_things_total")) << request;
    EXPECT_LT(RealClock().NowNs() - begun_ns, bystander.Bound(kSecondNs)) << request;
    is_over = true;
    trickle.join();
  }
}

TEST(MetricsEndpoint, OnlyPlainAddresses) {
  const auto source = [] { return MetricList(); };
  for (const char* address :
       {"", "x", ":", ":80", "80x", "1,2", "127.0.0.1:80s", "127.0.0.1:80r", "65536", "-1",
        "127.0.0.1:80,81", "a b:1", "::1:80", "[x]:80", "+1"}) {
    const auto endpoint = MetricsEndpoint::Start(address, {"a", "b"}, source);
    EXPECT_TRUE(absl::IsInvalidArgument(endpoint.status())) << address << ": " << endpoint.status();
  }
}

TEST(MetricsEndpoint, AddressesOfSeveralProcesses) {
  EXPECT_EQ(*AddressWithOffset("9101", 2), "127.0.0.1:9103");
  EXPECT_EQ(*AddressWithOffset("[::1]:9101", 0), "[::1]:9101");
  EXPECT_EQ(*AddressWithOffset("10.0.0.1:0", 5), "10.0.0.1:0");
  EXPECT_TRUE(absl::IsInvalidArgument(AddressWithOffset("65535", 1).status()));
}

}  // namespace
}  // namespace pando
