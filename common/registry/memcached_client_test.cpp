#include "common/registry/memcached_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "common/registry/test_memcached.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

constexpr int64_t kExpiryS = 1000;

TEST(MemcachedClientTest, ChangesAreConditional) {
  TestMemcached memcached;
  MemcachedClient client("127.0.0.1", memcached.port()), other("127.0.0.1", memcached.port());
  const std::string key(kMemcachedKeyBytesMax, 'k');
  EXPECT_FALSE(client.Get(key)->has_value());
  EXPECT_FALSE(*client.Touch(key, kExpiryS));
  EXPECT_TRUE(*client.Add(key, "first", kExpiryS));
  EXPECT_FALSE(*other.Add(key, "second", kExpiryS));
  const MemcachedValue first = **client.Get(key);
  EXPECT_EQ(first.key, key);
  EXPECT_EQ(first.bytes, "first");
  const std::string bytes("\0\r\nEND\r\n", 8);
  EXPECT_TRUE(*other.Replace(first, bytes, kExpiryS));
  EXPECT_FALSE(*client.Replace(first, "third", kExpiryS));
  EXPECT_FALSE(*client.Remove(first));
  const MemcachedValue second = **client.Get(key);
  EXPECT_EQ(second.bytes, bytes);
  EXPECT_TRUE(*client.Touch(key, kExpiryS));
  EXPECT_TRUE(*client.Remove(**client.Get(key)));
  EXPECT_FALSE(client.Get(key)->has_value());
  EXPECT_FALSE(*client.Replace(second, "fourth", kExpiryS));
  EXPECT_TRUE(*client.Add(key, "fifth", kExpiryS));
}

TEST(MemcachedClientTest, GetsMany) {
  TestMemcached memcached;
  MemcachedClient client("localhost", memcached.port());
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back("key-" + std::to_string(i));
    if (i % 3 != 0) continue;
    ASSERT_TRUE(*client.Add(keys.back(), std::to_string(i), kExpiryS));
  }
  const auto values = client.GetMany(keys);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->size(), 334u);
  for (const MemcachedValue& value : *values) EXPECT_EQ(value.key, "key-" + value.bytes);
  EXPECT_TRUE(client.GetMany({})->empty());
}

TEST(MemcachedClientTest, ComesBackAfterARestart) {
  TestMemcached memcached;
  MemcachedClient client("127.0.0.1", memcached.port());
  ASSERT_TRUE(*client.Add("key", "value", kExpiryS));
  memcached.Kill();
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = client.Get("key").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  }
  const absl::Status status = client.Add("key", "value", kExpiryS).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is it running?"));
  memcached.Restart();
  const auto value = client.Get("key");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_FALSE(value->has_value());
}

TEST(MemcachedClientTest, AMemcachedThatHangsIsAStatus) {
  TestMemcached memcached;
  MemcachedClient before("127.0.0.1", memcached.port()), after("127.0.0.1", memcached.port());
  ASSERT_TRUE(*before.Add("key", "value", kExpiryS));
  memcached.Pause();
  for (MemcachedClient* client : {&before, &after}) {
    const absl::Status status = client->Get("key").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer")) << status;
    EXPECT_EQ(client->Add("other", "x", kExpiryS).status().code(), absl::StatusCode::kUnavailable);
  }
  memcached.Resume();
  // No late answer is taken for the answer to another question.
  EXPECT_EQ((*before.Get("key"))->bytes, "value");
  EXPECT_EQ((*after.Get("key"))->bytes, "value");
}

// Answers its only connection's questions, whatever they are, with one answer each, then closes.
class FakeMemcached {
 public:
  explicit FakeMemcached(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) != 0) abort();
    if (getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) abort();
    if (listen(listener_, 1) != 0) abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Answer(); });
  }
  ~FakeMemcached() {
    thread_.join();
    close(listener_);
  }
  uint16_t port() const { return port_; }

 private:
  void Answer() {
    const int peer = accept(listener_, nullptr, nullptr);
    for (const std::string& answer : answers_) {
      char question[1024];
      if (read(peer, question, sizeof(question)) <= 0) break;
      if (write(peer, answer.data(), answer.size()) < 0) break;
    }
    shutdown(peer, SHUT_WR);
    close(peer);
  }

  const std::vector<std::string> answers_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(MemcachedClientTest, WhatIsNoMemcachedIsAStatus) {
  for (const std::string answer :
       {"", "HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "ERROR\r\n"}) {
    FakeMemcached server({answer});
    MemcachedClient client("127.0.0.1", server.port());
    EXPECT_EQ(client.Get("key").status().code(), absl::StatusCode::kUnavailable) << answer;
  }
}

TEST(MemcachedClientTest, NonsenseIsNoValue) {
  for (const std::string answer :
       {"VALUE key 0 10 1\r\nshort\r\nEND\r\n", "SERVER_ERROR out of memory\r\n", "\r\n", "END"}) {
    FakeMemcached server({"END\r\n", answer});
    MemcachedClient client("127.0.0.1", server.port());
    const auto value = client.Get("key");
    EXPECT_TRUE(!value.ok() || !value->has_value()) << answer;
  }
}

TEST(MemcachedClientTest, UnknownHostsAreAStatus) {
  MemcachedClient client("no-such-host.invalid", 11211);
  EXPECT_EQ(client.Get("key").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pando
