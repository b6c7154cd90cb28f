// What a registry in a memcached does when that dies, hangs, comes back empty, or was never there.
#include <chrono>
#include <thread>

#include "common/registry/entry.h"
#include "common/registry/memcached_member.h"
#include "common/registry/memcached_registry.h"
#include "common/registry/test_memcached.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MemcachedOutageTest : public testing::Test {
 protected:
  std::unique_ptr<Registry> Open() const {
    MemcachedRegistryOptions options = *ParseMemcachedName(memcached_.Registry("words"));
    options.expiry_s = 2;
    options.renew_ms = 50;
    return std::make_unique<MemcachedRegistry>(options);
  }
  // Waits until the announcement says so.
  static void Await(const Announcement& announcement, absl::StatusCode code) {
    while (announcement.status().code() != code) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  TestMemcached memcached_;
};

const ServerLocation kServer = {3, "/run/socket"};

TEST_F(MemcachedOutageTest, NobodyThere) {
  const std::string name = memcached_.Registry("words");
  memcached_.Kill();
  const absl::Status opened = OpenRegistry(name).status();
  EXPECT_EQ(opened.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(opened.message()), HasSubstr("is it running?"));
  EXPECT_EQ(Open()->Announce(kServer).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Open()->List().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Open()->WaitFor(1, 60'000).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(MemcachedOutageTest, NobodyAnswers) {
  auto registry = Open();
  ASSERT_TRUE(registry->List().ok());
  memcached_.Pause();
  EXPECT_EQ(OpenRegistry(memcached_.Registry("words")).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(registry->Announce(kServer).status().code(), absl::StatusCode::kUnavailable);
  const absl::Status listed = registry->List().status();
  EXPECT_EQ(listed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(listed.message()), HasSubstr("does not answer"));
  EXPECT_EQ(registry->WaitFor(1, 60'000).status().code(), absl::StatusCode::kUnavailable);
  memcached_.Resume();
  EXPECT_TRUE(registry->List().ok());
}

TEST_F(MemcachedOutageTest, MembersComeBackWithTheMemcached) {
  auto registry = Open();
  auto announced = registry->Announce(kServer);
  ASSERT_TRUE(announced.ok()) << announced.status();
  for (int i = 0; i < 3; ++i) {
    memcached_.Kill();
    Await(**announced, absl::StatusCode::kUnavailable);
    memcached_.Restart();
    const auto found = registry->WaitFor(1, 60'000);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(*found, ElementsAre(kServer));
    Await(**announced, absl::StatusCode::kOk);
  }
}

TEST_F(MemcachedOutageTest, MembersOutliveAMemcachedThatHangs) {
  auto registry = Open();
  auto announced = registry->Announce(kServer);
  ASSERT_TRUE(announced.ok()) << announced.status();
  memcached_.Pause();
  Await(**announced, absl::StatusCode::kUnavailable);
  memcached_.Resume();
  Await(**announced, absl::StatusCode::kOk);
  EXPECT_THAT(*registry->List(), ElementsAre(kServer));
}

TEST_F(MemcachedOutageTest, EntriesLastWhileTheyAreRenewed) {
  auto registry = Open();
  auto announced = registry->Announce(kServer);
  ASSERT_TRUE(announced.ok()) << announced.status();
  std::this_thread::sleep_for(std::chrono::seconds(3));  // longer than an entry lives
  EXPECT_THAT(*registry->List(), ElementsAre(kServer));
}

TEST_F(MemcachedOutageTest, WithdrawingWithoutAMemcachedIsQuiet) {
  auto announced = Open()->Announce(kServer);
  ASSERT_TRUE(announced.ok()) << announced.status();
  memcached_.Kill();
  announced->reset();
  memcached_.Restart();
  EXPECT_TRUE(Open()->List()->empty());
}

TEST_F(MemcachedOutageTest, WhoseIdWasTakenStaysOut) {
  auto registry = Open();
  auto announced = registry->Announce(kServer);
  ASSERT_TRUE(announced.ok()) << announced.status();
  // Another host's server took the id, as if this process had been stopped for long.
  RegistryEntry other;
  other.location = {3, "elsewhere"};
  other.incarnation = 1;
  other.host = {"elsewhere", "another boot", 1};
  MemcachedClient client("127.0.0.1", memcached_.port());
  const std::string key = MemcachedServerKey(MemcachedKeyPrefix("words"), 3);
  for (bool done = false; !done;) {  // it may be renewed in between
    const auto seen = client.Get(key);
    ASSERT_TRUE(seen.ok() && seen->has_value()) << seen.status();
    const auto replaced = client.Replace(**seen, EncodeEntry(other), 1000);
    ASSERT_TRUE(replaced.ok()) << replaced.status();
    done = *replaced;
  }
  Await(**announced, absl::StatusCode::kAlreadyExists);
  announced->reset();
  const auto still = client.Get(key);
  ASSERT_TRUE(still.ok() && still->has_value()) << "it withdrew another's entry";
  EXPECT_EQ((*still)->bytes, EncodeEntry(other));
}

TEST_F(MemcachedOutageTest, WhoeverOverwritesAnEntryIsNamed) {
  auto announced = Open()->Announce(kServer);
  ASSERT_TRUE(announced.ok()) << announced.status();
  MemcachedClient client("127.0.0.1", memcached_.port());
  const std::string key = MemcachedServerKey(MemcachedKeyPrefix("words"), 3);
  for (bool done = false; !done;) {
    const auto seen = client.Get(key);
    ASSERT_TRUE(seen.ok() && seen->has_value()) << seen.status();
    const auto replaced = client.Replace(**seen, "junk", 2);
    ASSERT_TRUE(replaced.ok()) << replaced.status();
    done = *replaced;
  }
  Await(**announced, absl::StatusCode::kDataLoss);
  Await(**announced, absl::StatusCode::kOk);  // the junk expires; the entry comes back
}

}  // namespace
}  // namespace pando
