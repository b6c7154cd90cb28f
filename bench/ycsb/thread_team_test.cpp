#include "bench/ycsb/thread_team.h"

#include <atomic>
#include <chrono>

#include "gtest/gtest.h"

namespace pando::bench {
namespace {

using namespace std::chrono_literals;

TEST(ThreadTeamTest, NobodyWorksBeforeTheStart) {
  std::atomic<int> prepared{0}, worked{0}, finished{0};
  ThreadTeam team(4, {.prepare =
                          [&](int) {
                            ++prepared;
                            return absl::OkStatus();
                          },
                      .work =
                          [&](int) {
                            EXPECT_EQ(prepared, 4);
                            ++worked;
                            return absl::OkStatus();
                          },
                      .finish =
                          [&](int) {
                            ++finished;
                            return absl::OkStatus();
                          }});
  EXPECT_TRUE(team.WaitPrepared().ok());
  EXPECT_FALSE(team.WaitFinished(5ms));
  EXPECT_EQ(worked, 0);
  team.Start();
  while (!team.WaitFinished(1s)) {
  }
  EXPECT_EQ(worked, 4);
  EXPECT_EQ(finished, 4);
  EXPECT_TRUE(team.status().ok());
}

TEST(ThreadTeamTest, ErrorsAreToldAndEverybodyFinishes) {
  std::atomic<int> worked{0}, finished{0};
  {
    ThreadTeam team(3, {.prepare =
                            [](int thread) {
                              return thread == 1 ? absl::UnavailableError("no session")
                                                 : absl::OkStatus();
                            },
                        .work =
                            [&](int) {
                              ++worked;
                              return absl::OkStatus();
                            },
                        .finish =
                            [&](int) {
                              ++finished;
                              return absl::OkStatus();
                            }});
    EXPECT_EQ(team.WaitPrepared(), absl::UnavailableError("no session"));
  }
  EXPECT_EQ(worked, 0);
  EXPECT_EQ(finished, 3);
}

TEST(ThreadTeamTest, AnErrorWhileWorkingIsKept) {
  const auto ok = [](int) { return absl::OkStatus(); };
  ThreadTeam team(2, {.prepare = ok,
                      .work =
                          [](int thread) {
                            return thread == 0 ? absl::DataLossError("bad") : absl::OkStatus();
                          },
                      .finish = ok});
  ASSERT_TRUE(team.WaitPrepared().ok());
  team.Start();
  while (!team.WaitFinished(1s)) {
  }
  EXPECT_EQ(team.status(), absl::DataLossError("bad"));
}

}  // namespace
}  // namespace pando::bench
