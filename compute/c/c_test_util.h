// For tests through the C interface: a cluster, and a client, a tree and a session on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "pando.h"

namespace pando::c {

// The code's name, with the message of a call that failed.
inline testing::AssertionResult Gives(pando_code expected, pando_code code) {
  if (code == expected) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << pando_code_name(code) << ": " << (code == PANDO_OK ? "" : pando_last_message())
         << "; expected " << pando_code_name(expected) << ". ";
}

inline pando_bytes B(std::string_view bytes) { return pando_view(bytes.data(), bytes.size()); }
inline std::string S(pando_bytes bytes) {
  return {static_cast<const char*>(bytes.data), bytes.size};
}

class CTest : public testing::Test {
 protected:
  static constexpr size_t kValueBytes = 16;

  void SetUp() override {
    handles_before_ = pando_open_handles();
    client_ = Connect();
    tree_ = NewTree("t");
    ASSERT_TRUE(Gives(PANDO_OK, pando_open_session(client_, &session_)));
  }
  // What a test has not closed goes with its client; lists are nobody else's.
  void TearDown() override {
    if (client_ != nullptr) {
      EXPECT_TRUE(Gives(PANDO_OK, pando_close_client(client_)));
    }
    EXPECT_EQ(pando_open_handles(), handles_before_);
  }

  pando_client* Connect() {
    pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
    options.registry = cluster_.registry().c_str();
    const std::string fabric = IntegrationCluster::default_fabric();
    options.fabric = fabric.c_str();
    options.memory_servers_min = 2;
    pando_client* client = nullptr;
    EXPECT_TRUE(Gives(PANDO_OK, pando_connect(&options, &client)));
    return client;
  }
  pando_tree* NewTree(const char* name) {
    pando_tree_options options = PANDO_TREE_OPTIONS_INIT;
    options.key_bytes_max = options.value_bytes_max = kValueBytes;
    pando_tree* tree = nullptr;
    EXPECT_TRUE(Gives(PANDO_OK, pando_create_tree(client_, name, &options, &tree)));
    return tree;
  }

  pando_code Put(std::string_view key, std::string_view value) {
    return pando_put(session_, tree_, B(key), B(value), nullptr);
  }
  // The value, or the code's name.
  std::string Get(std::string_view key) { return Get(session_, key); }
  std::string Get(pando_session* session, std::string_view key) {
    char value[kValueBytes];
    size_t size = 0;
    const pando_code code = pando_get(session, tree_, B(key), value, sizeof(value), &size, nullptr);
    return code == PANDO_OK ? std::string(value, size) : pando_code_name(code);
  }
  static size_t SizeOf(const pando_list* list) {
    size_t size = 0;
    EXPECT_TRUE(Gives(PANDO_OK, pando_list_size(list, &size)));
    return size;
  }
  // All of a list, which is closed.
  static std::vector<std::pair<std::string, std::string>> TakeRows(pando_list* list) {
    const pando_row* rows = nullptr;
    EXPECT_TRUE(Gives(PANDO_OK, pando_list_rows(list, &rows)));
    std::vector<std::pair<std::string, std::string>> all;
    for (size_t i = 0; i < SizeOf(list); ++i) all.emplace_back(S(rows[i].key), S(rows[i].value));
    EXPECT_TRUE(Gives(PANDO_OK, pando_close_list(list)));
    return all;
  }
  // Values, or codes' names.
  static std::vector<std::string> TakeResults(pando_list* list) {
    const pando_result* results = nullptr;
    EXPECT_TRUE(Gives(PANDO_OK, pando_list_results(list, &results)));
    std::vector<std::string> all;
    for (size_t i = 0; i < SizeOf(list); ++i) {
      const auto code = static_cast<pando_code>(results[i].code);
      EXPECT_EQ(code == PANDO_OK, results[i].message.size == 0);
      all.push_back(code == PANDO_OK ? S(results[i].value) : pando_code_name(code));
    }
    EXPECT_TRUE(Gives(PANDO_OK, pando_close_list(list)));
    return all;
  }

  IntegrationCluster cluster_;
  uint64_t handles_before_ = 0;
  pando_client* client_ = nullptr;
  pando_tree* tree_ = nullptr;
  pando_session* session_ = nullptr;
};

}  // namespace pando::c

#define ASSERT_GIVES(code, call) ASSERT_TRUE(pando::c::Gives(code, call))
#define EXPECT_GIVES(code, call) EXPECT_TRUE(pando::c::Gives(code, call))
