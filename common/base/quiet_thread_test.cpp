#include "common/base/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <future>
#include <string>

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(QuietThreadTest, TakesNoSignalsOfTheProgram) {
  sigset_t before, inside, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  StartQuietThread("pando-quiet", [&inside] {
    pthread_sigmask(SIG_SETMASK, nullptr, &inside);
  })->join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGALRM}) {
    EXPECT_EQ(sigismember(&inside, signal), 1) << signal;
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
  }
  for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGPROF}) {
    EXPECT_EQ(sigismember(&inside, own_fault), 0) << own_fault;
  }
}

TEST(QuietThreadTest, IsSeenByItsName) {
  std::promise<void> looked;
  std::thread thread = *StartQuietThread("pando-quiet", [&looked] { looked.get_future().wait(); });
  char name[16] = "";
  pthread_getname_np(thread.native_handle(), name, sizeof(name));
  looked.set_value();
  thread.join();
  EXPECT_EQ(std::string(name), "pando-quiet");
}

TEST(QuietThreadTest, OneThatTheSystemDoesNotHaveIsAStatus) {
  LimitQuietThreads(1);
  StartQuietThread("pando-quiet", [] {})->join();
  const absl::Status none = StartQuietThread("pando-quiet", [] {}).status();
  LimitQuietThreads(-1);
  EXPECT_TRUE(absl::IsResourceExhausted(none)) << none;
  StartQuietThread("pando-quiet", [] {})->join();
}

}  // namespace
}  // namespace pando
