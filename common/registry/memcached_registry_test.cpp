#include "common/registry/memcached_registry.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/temporary_directory.h"
#include "common/registry/conformance.h"
#include "common/registry/entry.h"
#include "common/registry/memcached_member.h"
#include "common/registry/test_memcached.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MemcachedPlace final : public RegistryPlace {
 public:
  std::string Name(const std::string& cluster) const override {
    return memcached_.Registry(cluster);
  }

 private:
  TestMemcached memcached_;
};
INSTANTIATE_TEST_SUITE_P(Memcached, RegistryConformance,
                         testing::Values(ConformanceRegistry{
                             "memcached", [] { return std::make_unique<MemcachedPlace>(); }}),
                         ConformanceName);

TEST(MemcachedNameTest, IsTakenApart) {
  const auto plain = ParseMemcachedName("memcached://10.0.0.1:7000/words");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->host, "10.0.0.1");
  EXPECT_EQ(plain->port, 7000);
  EXPECT_EQ(plain->cluster, "words");
  const auto odd = ParseMemcachedName("memcached://[fe80::1]/a b/\xc3\xbc");
  ASSERT_TRUE(odd.ok()) << odd.status();
  EXPECT_EQ(odd->host, "fe80::1");
  EXPECT_EQ(odd->port, 11211);
  EXPECT_EQ(odd->cluster, "a b/\xc3\xbc");
  for (const char* bad :
       {"memcached://", "memcached://host", "memcached://host/", "memcached://host:0/x",
        "memcached://host:65536/x", "memcached://host:/x", "memcached://host:1x/x",
        "memcached:///x", "memcached://[::1/x", "memcached://[::1]x/x", "memcached://a b:1/x"}) {
    EXPECT_EQ(OpenRegistry(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(ParseMemcachedName("memcached://host/" + std::string(65, 'x')).ok());
}

TEST(MemcachedNameTest, NamesBecomeKeysOneToOne) {
  EXPECT_EQ(MemcachedKeyPrefix("words-1.2_x"), "pando1/words-1.2_x/");
  EXPECT_EQ(MemcachedKeyPrefix("a b/%\n"), "pando1/a%20b%2f%25%0a/");
  EXPECT_NE(MemcachedKeyPrefix("a%20b"), MemcachedKeyPrefix("a b"));
  const std::string longest =
      MemcachedServerKey(MemcachedKeyPrefix(std::string(64, '\xff')), 65535);
  EXPECT_LE(longest.size(), kMemcachedKeyBytesMax);
}

class MemcachedRegistryTest : public testing::Test {
 protected:
  MemcachedRegistryTest() : client_("127.0.0.1", memcached_.port()) {}

  // Entries that come and go fast.
  MemcachedRegistryOptions Options() const {
    MemcachedRegistryOptions options = *ParseMemcachedName(memcached_.Registry("my words"));
    options.expiry_s = 2;
    options.renew_ms = 100;
    return options;
  }
  std::unique_ptr<Registry> Here() const { return std::make_unique<MemcachedRegistry>(Options()); }
  // As seen from another host.
  std::unique_ptr<Registry> Elsewhere() const {
    MemcachedRegistryOptions options = Options();
    options.this_host = {"elsewhere", "another boot", 1};
    return std::make_unique<MemcachedRegistry>(options);
  }
  std::string Key(ServerId id) const {
    return MemcachedServerKey(MemcachedKeyPrefix("my words"), id);
  }
  std::string IndexKey() const { return MemcachedIndexKey(MemcachedKeyPrefix("my words")); }
  void Overwrite(const std::string& key, const std::string& bytes) {
    const auto seen = client_.Get(key);
    ASSERT_TRUE(seen.ok()) << seen.status();
    const auto done =
        seen->has_value() ? client_.Replace(**seen, bytes, 1000) : client_.Add(key, bytes, 1000);
    ASSERT_TRUE(done.ok() && *done) << done.status();
  }

  TestMemcached memcached_;
  MemcachedClient client_;
};

TEST_F(MemcachedRegistryTest, SaysWhichHostAServerIsOn) {
  auto announced = Elsewhere()->Announce(At(3, "/run/socket"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  const auto seen = Here()->List();
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_EQ(seen->size(), 1u);
  EXPECT_EQ(seen->front().host, "elsewhere");
  EXPECT_THAT(*Elsewhere()->List(), ElementsAre(At(3, "/run/socket")));
  const absl::Status status = CheckReachable(*seen, "shm");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("runs on host elsewhere"));
}

TEST_F(MemcachedRegistryTest, ALiveServerOfAnotherHostKeepsItsId) {
  auto announced = Elsewhere()->Announce(At(3, "there"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  const absl::Status second = Here()->Announce(At(3, "here")).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.message()), HasSubstr("of host elsewhere at there"));
  EXPECT_TRUE((*announced)->status().ok());
}

TEST_F(MemcachedRegistryTest, ADeadServerOfAnotherHostIsReplacedOnceItsEntryExpires) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto announced = Elsewhere()->Announce(At(3, "child"));
    if (write(ready[1], announced.ok() ? "y" : "n", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  auto announced = Here()->Announce(At(3, "here"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_THAT(*Here()->List(), ElementsAre(At(3, "here")));
}

TEST_F(MemcachedRegistryTest, ForeignValuesAreAStatus) {
  auto registry = Here();
  auto announced = registry->Announce(At(3, "here"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  const std::string entry = (**client_.Get(Key(3))).bytes;
  std::string other_version = entry;
  other_version[4] = 9;
  announced->reset();
  auto another = registry->Announce(At(4, "keeps the index"));
  for (const std::string& bad : {std::string(), std::string("junk"), entry.substr(0, 40),
                                 entry + "x", std::string(100'000, 'x'), other_version}) {
    const absl::StatusCode expected =
        bad == other_version ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss;
    Overwrite(Key(3), bad);
    for (const absl::Status& status :
         {registry->List().status(), registry->Announce(At(3, "again")).status()}) {
      EXPECT_EQ(status.code(), expected) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(Key(3)));
    }
  }
  // An entry, but another server's.
  Overwrite(Key(3), (**client_.Get(Key(4))).bytes);
  EXPECT_EQ(registry->List().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(MemcachedRegistryTest, AForeignIndexIsAStatus) {
  auto registry = Here();
  Overwrite(IndexKey(), "junk");
  for (const absl::Status& status :
       {registry->List().status(), registry->Announce(At(3, "here")).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(IndexKey()));
  }
  EXPECT_FALSE(client_.Get(Key(3))->has_value()) << "who cannot be found is not announced";
}

TEST_F(MemcachedRegistryTest, IdsWithoutEntriesAreNotListed) {
  Overwrite(IndexKey(), EncodeIndex({0, 7, 65535}));
  EXPECT_THAT(*Here()->List(), IsEmpty());
}

TEST_F(MemcachedRegistryTest, SocketsHaveAPlace) {
  const TemporaryDirectory directory;
  const std::string before = getenv("XDG_RUNTIME_DIR") != nullptr ? getenv("XDG_RUNTIME_DIR") : "";
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const auto path = Here()->SocketPath(3);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, HasSubstr(directory.path() + "/pando-sockets/server-3-"));
  setenv("XDG_RUNTIME_DIR", (directory.path() + "/pando-sockets/" + std::string(90, 'd')).c_str(),
         1);
  EXPECT_FALSE(Here()->SocketPath(3).ok());
  // Prepared by somebody else, as a name in /tmp can be.
  ASSERT_EQ(chmod((directory.path() + "/pando-sockets").c_str(), 0777), 0);
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const auto open_to_others = Here()->SocketPath(3);
  EXPECT_EQ(open_to_others.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(open_to_others.status().message()), HasSubstr("XDG_RUNTIME_DIR"));
  setenv("XDG_RUNTIME_DIR", before.c_str(), 1);
}

}  // namespace
}  // namespace pando
