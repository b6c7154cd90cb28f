// Every operation of the C interface, with what it says.
#include <cstring>
#include <string>
#include <vector>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

class COperationsTest : public CTest {};
using Strings = std::vector<std::string>;

// As kAdd takes it.
std::string Number(int64_t number) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &number, 8);
  return bytes;
}

TEST_F(COperationsTest, PlainWritesAndGets) {
  EXPECT_EQ(Get("a"), "NOT_FOUND");
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  EXPECT_EQ(Get("a"), "1");
  EXPECT_GIVES(PANDO_ALREADY_EXISTS, pando_insert(session_, tree_, B("a"), B("2"), nullptr));
  EXPECT_GIVES(PANDO_OK, pando_insert(session_, tree_, B("b"), B(""), nullptr));
  EXPECT_EQ(Get("b"), "");
  EXPECT_GIVES(PANDO_OK, pando_update(session_, tree_, B("b"), B("3"), nullptr));
  EXPECT_GIVES(PANDO_NOT_FOUND, pando_update(session_, tree_, B("c"), B("3"), nullptr));
  EXPECT_GIVES(PANDO_OK, pando_erase(session_, tree_, B("b"), nullptr));
  EXPECT_GIVES(PANDO_NOT_FOUND, pando_erase(session_, tree_, B("b"), nullptr));
  EXPECT_EQ(std::string(pando_last_message()).find('\n'), std::string::npos);
}

TEST_F(COperationsTest, ZeroBytesAreBytes) {
  using namespace std::string_view_literals;
  ASSERT_GIVES(PANDO_OK, Put("a\0b"sv, "\0\0"sv));
  ASSERT_GIVES(PANDO_OK, Put("a"sv, "1"sv));
  EXPECT_EQ(Get("a\0b"sv), std::string("\0\0", 2));
  EXPECT_EQ(Get("a"), "1");
}

TEST_F(COperationsTest, ABufferThatIsTooShortIsToldHowLong) {
  ASSERT_GIVES(PANDO_OK, Put("a", "12345"));
  char value[4] = {'x', 'x', 'x', 'x'};
  size_t size = 0;
  EXPECT_GIVES(PANDO_OUT_OF_RANGE, pando_get(session_, tree_, B("a"), value, 4, &size, nullptr));
  EXPECT_EQ(size, 5u);
  EXPECT_EQ(value[0], 'x');
  EXPECT_GIVES(PANDO_OUT_OF_RANGE, pando_get(session_, tree_, B("a"), nullptr, 0, &size, nullptr));
  ASSERT_GIVES(PANDO_OK, Put("a", ""));
  EXPECT_GIVES(PANDO_OK, pando_get(session_, tree_, B("a"), nullptr, 0, &size, nullptr));
  EXPECT_EQ(size, 0u);
}

TEST_F(COperationsTest, ConditionalWrites) {
  char actual[kValueBytes];
  size_t size = 0;
  const auto replace = [&](const char* expected, const char* desired) {
    return pando_replace(session_, tree_, B("a"), pando_text(expected), pando_text(desired), actual,
                         sizeof(actual), &size, nullptr);
  };
  EXPECT_GIVES(PANDO_NOT_FOUND, replace("1", "2"));
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  EXPECT_GIVES(PANDO_OK, replace("1", "2"));
  EXPECT_GIVES(PANDO_CONDITION_FAILED, replace("1", "3"));
  EXPECT_EQ(std::string(actual, size), "2");
  EXPECT_GIVES(PANDO_CONDITION_FAILED,
               pando_erase_if(session_, tree_, B("a"), B("1"), nullptr, 0, nullptr, nullptr));
  // A buffer in which the answer might not fit: nothing is done.
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_erase_if(session_, tree_, B("a"), B("2"), actual,
                                                      kValueBytes - 1, &size, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_erase_if(session_, tree_, B("a"), B("2"), actual,
                                                      kValueBytes, nullptr, nullptr));
  EXPECT_EQ(Get("a"), "2");
  EXPECT_GIVES(PANDO_OK,
               pando_erase_if(session_, tree_, B("a"), B("2"), nullptr, 0, nullptr, nullptr));
  EXPECT_EQ(Get("a"), "NOT_FOUND");
}

TEST_F(COperationsTest, Upserts) {
  char value[kValueBytes];
  size_t size = 0;
  const auto upsert = [&](uint32_t function, std::string_view operand) {
    return pando_upsert(session_, tree_, B("n"), function, B(operand), value, sizeof(value), &size,
                        nullptr);
  };
  ASSERT_GIVES(PANDO_OK, upsert(PANDO_UPSERT_ADD, Number(40)));
  ASSERT_GIVES(PANDO_OK, upsert(PANDO_UPSERT_ADD, Number(2)));
  EXPECT_EQ(std::string(value, size), Number(42));
  ASSERT_GIVES(PANDO_OK, upsert(PANDO_UPSERT_MAX, Number(7)));
  EXPECT_EQ(std::string(value, size), Number(42));
  ASSERT_GIVES(PANDO_OK, upsert(PANDO_UPSERT_MIN, Number(7)));
  EXPECT_EQ(std::string(value, size), Number(7));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, upsert(PANDO_UPSERT_ADD, "short"));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, upsert(77, Number(7)));
  ASSERT_GIVES(PANDO_OK, Put("n", "text"));
  EXPECT_GIVES(PANDO_CONDITION_FAILED, upsert(PANDO_UPSERT_ADD, Number(7)));
  EXPECT_EQ(std::string(value, size), "text");
  ASSERT_GIVES(PANDO_OK, pando_upsert(session_, tree_, B("n"), PANDO_UPSERT_APPEND, B("+"), nullptr,
                                      0, nullptr, nullptr));
  EXPECT_EQ(Get("n"), "text+");
}

TEST_F(COperationsTest, ManyInOneCall) {
  const pando_row rows[] = {{B("a"), B("1")}, {B("b"), B("2")}, {B(""), B("no key")}};
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_multi_put(session_, tree_, rows, 3, nullptr, &list));
  EXPECT_EQ(TakeResults(list), (Strings{"", "", "INVALID_ARGUMENT"}));
  const pando_bytes keys[] = {B("b"), B("none"), B("a")};
  ASSERT_GIVES(PANDO_OK, pando_multi_get(session_, tree_, keys, 3, nullptr, &list));
  EXPECT_EQ(TakeResults(list), (Strings{"2", "NOT_FOUND", "1"}));
  ASSERT_GIVES(PANDO_OK, pando_multi_erase(session_, tree_, keys, 2, nullptr, &list));
  EXPECT_EQ(TakeResults(list), (Strings{"", "NOT_FOUND"}));
  ASSERT_GIVES(PANDO_OK, pando_multi_get(session_, tree_, nullptr, 0, nullptr, &list));
  EXPECT_EQ(TakeResults(list), Strings());
}

TEST_F(COperationsTest, WritesOfAllKindsInOneCall) {
  const std::string two = Number(2);
  const pando_write writes[] = {
      {PANDO_WRITE_PUT, B("a"), B("1"), {}, 0},
      {PANDO_WRITE_INSERT, B("a"), B("2"), {}, 0},
      {PANDO_WRITE_UPDATE, B("a"), B("3"), {}, 0},
      {PANDO_WRITE_REPLACE, B("a"), B("4"), B("1"), 0},
      {PANDO_WRITE_UPSERT, B("n"), B(two), {}, PANDO_UPSERT_ADD},
      {PANDO_WRITE_ERASE_IF, B("a"), {}, B("3"), 0},
      {PANDO_WRITE_ERASE, B("a"), {}, {}, 0},
  };
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_write_many(session_, tree_, writes, 7, nullptr, &list));
  const pando_result* results = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_list_results(list, &results));
  EXPECT_EQ(S(results[3].value), "3") << "the present value";
  EXPECT_EQ(TakeResults(list),
            (Strings{"", "ALREADY_EXISTS", "", "CONDITION_FAILED", two, "", "NOT_FOUND"}));
}

TEST_F(COperationsTest, CostsAreAddedUp) {
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  pando_operation_cost cost = {};
  pando_operation_options options = PANDO_OPERATION_OPTIONS_INIT;
  options.cost = &cost;
  char value[kValueBytes];
  size_t size;
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_GIVES(PANDO_OK,
                 pando_get(session_, tree_, B("a"), value, sizeof(value), &size, &options));
    EXPECT_EQ(cost.round_trips, i);
  }
  EXPECT_GT(cost.bytes_read, 0u);
  options.timeout_ms = -1;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_get(session_, tree_, B("a"), value, sizeof(value), &size, &options));
}

TEST_F(COperationsTest, TreesAndWhatIsSaidOfThem) {
  pando_tree* again = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_tree(client_, "t", &again));
  EXPECT_NE(again, tree_);
  pando_tree_info info = {};
  info.size = sizeof(info);
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(again, &info));
  EXPECT_STREQ(info.name, "t");
  EXPECT_EQ(info.key_bytes_max, kValueBytes);
  EXPECT_EQ(info.mode, PANDO_MODE_SHARED);
  EXPECT_GIVES(PANDO_OK, pando_close_tree(again));
  pando_tree_options others = PANDO_TREE_OPTIONS_INIT;
  EXPECT_GIVES(PANDO_FAILED_PRECONDITION, pando_create_tree(client_, "t", &others, &again));
  EXPECT_EQ(again, nullptr);
  EXPECT_GIVES(PANDO_NOT_FOUND, pando_open_tree(client_, "none", &again));
  EXPECT_GIVES(PANDO_OK, pando_tree_status(client_, tree_));
  others.narrow_reads = info.narrow_reads == 1 ? 0 : 1;
  ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "other", &others, &again));
  pando_tree_info other = {};
  other.size = sizeof(other);
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(again, &other));
  EXPECT_EQ(other.narrow_reads, others.narrow_reads);
  EXPECT_GIVES(PANDO_OK, pando_close_tree(again));
  EXPECT_GIVES(PANDO_OK, pando_drop_tree(client_, "other"));

  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_list_trees(client_, &list));
  ASSERT_EQ(SizeOf(list), 1u);
  ASSERT_GIVES(PANDO_OK, pando_list_tree(list, 0, &info));
  EXPECT_STREQ(info.name, "t");
  EXPECT_GIVES(PANDO_OUT_OF_RANGE, pando_list_tree(list, 1, &info));
  const pando_row* rows = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_list_rows(list, &rows)) << "it is one of trees";
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));
  EXPECT_GIVES(PANDO_OK, pando_drop_tree(client_, "t"));
  EXPECT_GIVES(PANDO_NOT_FOUND, pando_drop_tree(client_, "t"));
  EXPECT_GIVES(PANDO_OK, Put("a", "1")) << "handles go on";
  pando_check_report report = {};
  report.size = sizeof(report);
  EXPECT_GIVES(PANDO_NOT_FOUND, pando_check(session_, tree_, nullptr, &report, nullptr));
}

TEST_F(COperationsTest, ServersAndCounters) {
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_list_servers(client_, &list));
  ASSERT_EQ(SizeOf(list), 2u);
  pando_server_info server = {};
  server.size = sizeof(server);
  ASSERT_GIVES(PANDO_OK, pando_list_server(list, 0, &server));
  EXPECT_EQ(server.id, 1u);
  EXPECT_EQ(server.available, 1);
  EXPECT_EQ(server.is_catalog, 1);
  EXPECT_GT(server.region_bytes, server.free_bytes);
  ASSERT_GT(server.counters_count, 0u);
  EXPECT_NE(server.counters[0].name[0], '\0');
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));

  pando_client_stats stats = {};
  stats.size = sizeof(stats);
  ASSERT_GIVES(PANDO_OK, pando_get_client_stats(client_, &stats));
  const uint64_t reads = stats.reads;
  EXPECT_EQ(Get("a"), "NOT_FOUND");
  ASSERT_GIVES(PANDO_OK, pando_get_client_stats(client_, &stats));
  EXPECT_GT(stats.reads, reads);
  int32_t fenced = 7;
  EXPECT_GIVES(PANDO_OK, pando_client_fenced(client_, &fenced));
  EXPECT_EQ(fenced, 0);
  uint16_t id = 0;
  EXPECT_GIVES(PANDO_OK, pando_compute_server_id(client_, &id));
  EXPECT_GT(id, 0);
}

TEST_F(COperationsTest, OwnedTrees) {
  pando_tree_options options = PANDO_TREE_OPTIONS_INIT;
  options.mode = PANDO_MODE_OWNED;
  pando_tree* owned = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "o", &options, &owned));
  ASSERT_GIVES(PANDO_OK, pando_put(session_, owned, B("a"), B("1"), nullptr));
  EXPECT_GIVES(PANDO_OK, pando_flush(session_, owned, nullptr));
  uint16_t self = 0;
  ASSERT_GIVES(PANDO_OK, pando_compute_server_id(client_, &self));
  pando_list* list = nullptr;
  pando_range_info range = {};
  range.size = sizeof(range);
  ASSERT_GIVES(PANDO_OK, pando_owner_of(client_, owned, B("a"), &list));
  ASSERT_GIVES(PANDO_OK, pando_list_range(list, 0, &range));
  EXPECT_EQ(range.compute_server, self);
  EXPECT_GT(range.incarnation, 0u);
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));
  ASSERT_GIVES(PANDO_OK, pando_list_ranges(client_, owned, &list));
  EXPECT_GT(SizeOf(list), 0u);
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));
  ASSERT_GIVES(PANDO_OK, pando_list_members(client_, &list));
  pando_member_info member = {};
  member.size = sizeof(member);
  ASSERT_GIVES(PANDO_OK, pando_list_member(list, 0, &member));
  EXPECT_EQ(member.compute_server, self);
  EXPECT_EQ(member.ended, 0);
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));
  EXPECT_GIVES(PANDO_FAILED_PRECONDITION, pando_list_ranges(client_, tree_, &list));
  EXPECT_EQ(list, nullptr);
}

}  // namespace
}  // namespace pando::c
