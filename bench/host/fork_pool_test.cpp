#include "bench/host/fork_pool.h"

#include <signal.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

TEST(ForkPool, AnswersComeInTheOrderOfTheJobs) {
  std::vector<ForkJob> jobs;
  for (int i = 0; i < 7; ++i) {
    jobs.push_back({"job", [i] {
                      usleep(static_cast<useconds_t>(7 - i) * 2'000);
                      return Json{{"number", i}};
                    }});
  }
  std::vector<bool> ended(jobs.size());
  const auto answers = RunForked(jobs, 3, [&ended](size_t job, const Json& answer) {
    EXPECT_EQ(answer["number"], job);
    ended[job] = true;
  });
  ASSERT_TRUE(answers.ok()) << answers.status();
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ((*answers)[i]["number"], i);
    EXPECT_TRUE(ended[i]);
  }
}

TEST(ForkPool, AnAnswerMayBeLongerThanAPipe) {
  const std::string text(3 << 20, 'x');
  const auto answers = RunForked({{"long", [&text] { return Json(text); }}}, 1);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ((*answers)[0], text);
}

TEST(ForkPool, AChildChangesNothingOfItsParent) {
  int value = 1;
  const auto answers = RunForked(
      {{"one", [&value] { return Json(++value); }}, {"two", [&value] { return Json(++value); }}},
      2);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ((*answers)[0], 2);
  EXPECT_EQ((*answers)[1], 2);
  EXPECT_EQ(value, 1);
}

TEST(ForkPool, AChildThatDiesIsReportedByName) {
  const auto answers = RunForked({{"the good", [] { return Json(1); }},
                                  {"the bad",
                                   []() -> absl::StatusOr<Json> {
                                     raise(SIGKILL);
                                     return Json(2);
                                   }}},
                                 1);
  EXPECT_EQ(answers.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(answers.status().message().find("the bad"), std::string::npos) << answers.status();
  EXPECT_NE(answers.status().message().find("signal 9"), std::string::npos) << answers.status();
}

TEST(ForkPool, AChildThatExitsWithoutAnAnswerIsReported) {
  const auto answers = RunForked({{"silent", []() -> absl::StatusOr<Json> { _exit(0); }}}, 1);
  EXPECT_EQ(answers.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(answers.status().message().find("silent"), std::string::npos) << answers.status();
}

TEST(ForkPool, AStatusComesBackWithTheNameOfItsJob) {
  const auto answers = RunForked(
      {{"picky", []() -> absl::StatusOr<Json> { return absl::InvalidArgumentError("not that"); }}},
      1);
  EXPECT_EQ(answers.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(answers.status().message(), "picky: not that");
}

}  // namespace
}  // namespace pando::bench
