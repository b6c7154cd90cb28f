#include "compute/lock/lock_request.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "compute/lock/lock_test_util.h"

namespace pando {
namespace {

using State = LockRequest::State;
constexpr int kStates = static_cast<int>(State::kStates);

// How a request gets into a state.
const std::vector<std::vector<State>> kWays = {
    {},                                 // kQueued
    {State::kGrantedLocal},             //
    {State::kGrantedGlobal},            //
    {State::kExecuting},                //
    {State::kExecuting, State::kDone},  //
    {State::kAbandoned},                // from the queue
};

const std::set<std::pair<State, State>> kAllowed = {
    {State::kQueued, State::kGrantedLocal}, {State::kQueued, State::kGrantedGlobal},
    {State::kQueued, State::kExecuting},    {State::kQueued, State::kAbandoned},
    {State::kExecuting, State::kQueued},    {State::kExecuting, State::kDone},
    {State::kExecuting, State::kAbandoned},
};

class LockRequestTest : public testing::Test {
 protected:
  LockTestSession session_;

  std::unique_ptr<LockRequest> In(State state) {
    auto request = std::make_unique<LockRequest>(&session_.scheduler, 0);
    for (const State step : kWays[static_cast<size_t>(state)]) request->MoveTo(step);
    return request;
  }
};

TEST_F(LockRequestTest, TheTableOfTransitions) {
  for (int from = 0; from < kStates; ++from) {
    for (int to = 0; to < kStates; ++to) {
      if (!kAllowed.contains({State(from), State(to)})) continue;
      const auto request = In(State(from));
      ASSERT_EQ(request->state(), State(from));
      request->MoveTo(State(to));
      EXPECT_EQ(request->state(), State(to));
    }
  }
}

using LockRequestDeathTest = LockRequestTest;

TEST_F(LockRequestDeathTest, EverythingElseIsABug) {
  GTEST_FLAG_SET(death_test_style, "fast");
  for (int from = 0; from < kStates; ++from) {
    for (int to = 0; to < kStates; ++to) {
      if (kAllowed.contains({State(from), State(to)})) continue;
      const auto request = In(State(from));
      EXPECT_DEATH(request->MoveTo(State(to)), "lock request from state")
          << "from " << from << " to " << to;
    }
  }
}

TEST_F(LockRequestTest, GrantsAndOutcomesAreFinal) {
  for (const auto& [from, to] : kAllowed) {
    EXPECT_NE(from, State::kGrantedLocal);
    EXPECT_NE(from, State::kGrantedGlobal);
    EXPECT_NE(from, State::kDone);
    EXPECT_NE(from, State::kAbandoned);
  }
}

TEST_F(LockRequestTest, SaysWhatItWaitsFor) {
  const LockRequest request(&session_.scheduler, 17, 3, {RemoteAddress(1, 4096), 2});
  EXPECT_TRUE(request.combinable());
  EXPECT_EQ(request.node.address, RemoteAddress(1, 4096));
  EXPECT_EQ(request.deadline_ns, 17);
  EXPECT_EQ(request.tree_id, 3u);
  EXPECT_FALSE(LockRequest(&session_.scheduler, 0).combinable());
}

}  // namespace
}  // namespace pando
