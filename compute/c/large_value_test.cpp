// Values that lie outside the leaves, through each function that takes or gives values.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

constexpr size_t kMostBytes = 65'536;

class CLargeValueTest : public CTest {
 protected:
  void SetUp() override {
    CTest::SetUp();
    options_.key_bytes_max = 16;
    options_.value_bytes_max = kMostBytes;
    options_.inline_value_bytes_max = 40;
    ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "large", &options_, &large_));
  }
  // Bytes that differ wherever two are mixed.
  static std::string ValueOf(size_t bytes, char first) {
    std::string value(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) value[i] = static_cast<char>(first + i % 251);
    return value;
  }
  std::string GetLarge(std::string_view key) {
    std::string value(kMostBytes, '\0');
    size_t size = 0;
    const pando_code code =
        pando_get(session_, large_, B(key), value.data(), value.size(), &size, nullptr);
    return code == PANDO_OK ? value.substr(0, size) : pando_code_name(code);
  }

  pando_tree_options options_ = PANDO_TREE_OPTIONS_INIT;
  pando_tree* large_ = nullptr;
};

TEST_F(CLargeValueTest, OptionsAndInfo) {
  pando_tree_info info = {};
  info.size = sizeof(info);
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(large_, &info));
  EXPECT_EQ(info.value_bytes_max, kMostBytes);
  EXPECT_EQ(info.inline_value_bytes_max, 40u);
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(tree_, &info));
  EXPECT_EQ(info.inline_value_bytes_max, info.value_bytes_max);
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_list_trees(client_, &list));
  for (size_t i = 0; i < SizeOf(list); ++i) {
    ASSERT_GIVES(PANDO_OK, pando_list_tree(list, i, &info));
    EXPECT_EQ(info.inline_value_bytes_max, std::string(info.name) == "large" ? 40 : kValueBytes);
  }
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));

  pando_tree* none = nullptr;
  for (const auto& [values, inlined, mode] :
       {std::tuple<uint64_t, uint64_t, int64_t>{kMostBytes + 1, 0, PANDO_MODE_SHARED},
        {1000, 255, PANDO_MODE_SHARED},
        {1000, uint64_t{1} << 40, PANDO_MODE_SHARED},
        {1000, 255, PANDO_MODE_OWNED}}) {
    pando_tree_options options = PANDO_TREE_OPTIONS_INIT;
    options.value_bytes_max = values;
    options.inline_value_bytes_max = inlined;
    options.mode = mode;
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "none", &options, &none))
        << values << " " << inlined;
  }
  // A program that was built before there were such: its options end, its info is left alone.
  pando_tree_options old = options_;
  old.size = offsetof(pando_tree_options, inline_value_bytes_max);
  old.value_bytes_max = 100;
  ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "old", &old, &none));
  pando_tree_info old_info = {};
  old_info.size = offsetof(pando_tree_info, inline_value_bytes_max);
  old_info.inline_value_bytes_max = 77;
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(none, &old_info));
  EXPECT_EQ(old_info.value_bytes_max, 100u);
  EXPECT_EQ(old_info.inline_value_bytes_max, 77u);
}

TEST_F(CLargeValueTest, PlacesAreRememberedOrNot) {
  const std::string value = ValueOf(1'000, 'p');
  ASSERT_GIVES(PANDO_OK, pando_put(session_, large_, B("k"), B(value), nullptr));
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{0}}) {
    pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
    EXPECT_EQ(options.value_places_bytes, 32u << 20);
    options.registry = cluster_.registry().c_str();
    options.value_places_bytes = bytes;
    pando_client* client = nullptr;
    ASSERT_GIVES(PANDO_OK, pando_connect(&options, &client));
    pando_tree* tree = nullptr;
    ASSERT_GIVES(PANDO_OK, pando_open_tree(client, "large", &tree));
    pando_session* session = nullptr;
    ASSERT_GIVES(PANDO_OK, pando_open_session(client, &session));
    for (int times = 0; times < 3; ++times) {
      std::string got(kMostBytes, '\0');
      size_t size = 0;
      ASSERT_GIVES(PANDO_OK,
                   pando_get(session, tree, B("k"), got.data(), got.size(), &size, nullptr));
      EXPECT_EQ(got.substr(0, size), value);
    }
    pando_client_stats stats = {};
    stats.size = sizeof(stats);
    ASSERT_GIVES(PANDO_OK, pando_get_client_stats(client, &stats));
    EXPECT_EQ(stats.place_hits, bytes > 0 ? 2u : 0u);
    EXPECT_EQ(stats.place_misses, bytes > 0 ? 1u : 3u);
    EXPECT_EQ(stats.place_bytes > 0, bytes > 0);
    EXPECT_GIVES(PANDO_OK, pando_close_session(session));
    EXPECT_GIVES(PANDO_OK, pando_close_tree(tree));
    EXPECT_GIVES(PANDO_OK, pando_close_client(client));
  }
}

TEST_F(CLargeValueTest, OneKey) {
  const std::string most = ValueOf(kMostBytes, 'a'), other = ValueOf(kMostBytes, 'b');
  ASSERT_GIVES(PANDO_OK, pando_put(session_, large_, B("k"), B(most), nullptr));
  EXPECT_EQ(GetLarge("k"), most);
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_put(session_, large_, B("k"), B(most + "x"), nullptr));
  // A buffer that is too short gets nothing but the length.
  std::string buffer(kMostBytes, '\0');
  size_t size = 0;
  EXPECT_GIVES(PANDO_OUT_OF_RANGE,
               pando_get(session_, large_, B("k"), buffer.data(), kMostBytes - 1, &size, nullptr));
  EXPECT_EQ(size, kMostBytes);
  EXPECT_EQ(buffer, std::string(kMostBytes, '\0'));
  // Where the present value might not fit nothing is done.
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_replace(session_, large_, B("k"), B(most), B(other), buffer.data(),
                             kMostBytes - 1, &size, nullptr));
  EXPECT_GIVES(PANDO_CONDITION_FAILED, pando_replace(session_, large_, B("k"), B(other), B("1"),
                                                     buffer.data(), buffer.size(), &size, nullptr));
  EXPECT_EQ(buffer.substr(0, size), most);
  EXPECT_GIVES(PANDO_OK, pando_replace(session_, large_, B("k"), B(most), B(other), buffer.data(),
                                       buffer.size(), &size, nullptr));
  EXPECT_EQ(GetLarge("k"), other);
  ASSERT_GIVES(PANDO_OK, pando_put(session_, large_, B("k"), B(most.substr(1)), nullptr));
  EXPECT_GIVES(PANDO_OK, pando_upsert(session_, large_, B("k"), PANDO_UPSERT_APPEND, B("!"),
                                      buffer.data(), buffer.size(), &size, nullptr));
  EXPECT_EQ(buffer.substr(0, size), most.substr(1) + "!");
  EXPECT_GIVES(PANDO_CONDITION_FAILED, pando_upsert(session_, large_, B("k"), PANDO_UPSERT_APPEND,
                                                    B("!"), nullptr, 0, nullptr, nullptr));
  EXPECT_GIVES(PANDO_OK, pando_erase_if(session_, large_, B("k"), B(most.substr(1) + "!"), nullptr,
                                        0, nullptr, nullptr));
  EXPECT_EQ(GetLarge("k"), "NOT_FOUND");
}

// A program's own function makes the longest value, and one that is too long.
int AsLongAsAsked(void*, pando_bytes, const pando_bytes*, pando_bytes operand, void* result,
                  size_t capacity, size_t* result_size) {
  *result_size = std::stoul(S(operand));
  memset(result, 'u', std::min(*result_size, capacity));
  return 0;
}

TEST_F(CLargeValueTest, UpsertFunctionsHaveRoomForAnyValue) {
  ASSERT_GIVES(PANDO_OK, pando_register_upsert(client_, 1024, AsLongAsAsked, nullptr));
  const auto upsert = [&](const char* bytes) {
    return pando_upsert(session_, large_, B("u"), 1024, B(bytes), nullptr, 0, nullptr, nullptr);
  };
  ASSERT_GIVES(PANDO_OK, upsert("65536"));
  EXPECT_EQ(GetLarge("u"), std::string(kMostBytes, 'u'));
  ASSERT_GIVES(PANDO_OK, upsert("3"));
  EXPECT_GIVES(PANDO_CONDITION_FAILED, upsert("65537"));
  EXPECT_EQ(GetLarge("u"), "uuu");
}

// Rows of a load; where it is to fail the last one's key is not the greatest.
struct LoadedRows {
  const std::string value = std::string(10'000, 'r');
  bool fails = true;
  int next = 0;
  std::string key = {};

  static constexpr int kRows = 1'000;
  static int Next(void* context, pando_row* row) {
    auto& rows = *static_cast<LoadedRows*>(context);
    if (rows.next == kRows) return 0;
    const bool wrong = ++rows.next == kRows && rows.fails;
    rows.key = wrong ? "0" : "key" + std::to_string(100'000 + rows.next);
    *row = {B(rows.key), B(rows.value)};
    return 1;
  }
};

TEST_F(CLargeValueTest, ABulkLoadThatFailsLeavesNothingOnMemoryServers) {
  const auto used = [&] {
    pando_list* list = nullptr;
    EXPECT_GIVES(PANDO_OK, pando_list_servers(client_, &list));
    uint64_t bytes = 0;
    for (size_t i = 0; i < SizeOf(list); ++i) {
      pando_server_info server = {};
      server.size = sizeof(server);
      EXPECT_GIVES(PANDO_OK, pando_list_server(list, i, &server));
      bytes += server.used_bytes;
    }
    EXPECT_GIVES(PANDO_OK, pando_close_list(list));
    return bytes;
  };
  options_.mode = PANDO_MODE_OWNED;
  pando_tree* owned = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "owned", &options_, &owned));
  for (pando_tree* const tree : {large_, owned}) {
    // From here on the client has a log, if it needs one.
    LoadedRows none{.next = LoadedRows::kRows};
    ASSERT_GIVES(PANDO_OK, pando_bulk_load(session_, tree, LoadedRows::Next, &none));
    const uint64_t before = used();
    constexpr int kTimes = 4;
    const uint64_t bytes = LoadedRows::kRows * LoadedRows().value.size();
    for (int times = 0; times < kTimes; ++times) {
      LoadedRows rows;
      ASSERT_GIVES(PANDO_INVALID_ARGUMENT,
                   pando_bulk_load(session_, tree, LoadedRows::Next, &rows));
    }
    // What was freed rests, and this client keeps some of it.
    EXPECT_LT(used(), before + bytes * 3 / 2) << "of " << kTimes * bytes << " written";
    LoadedRows rows{.fails = false};
    ASSERT_GIVES(PANDO_OK, pando_bulk_load(session_, tree, LoadedRows::Next, &rows));
    EXPECT_LT(used(), before + bytes * 3 / 2);
  }
}

TEST_F(CLargeValueTest, ManyCursorsAndExecutors) {
  const std::vector<size_t> lengths = {kMostBytes, 0, 40, 41, 255, 256, 1'000, 65'535};
  std::vector<std::string> keys, values;
  std::vector<pando_row> rows;
  std::vector<pando_write> writes;
  std::vector<pando_bytes> asked;
  for (const size_t length : lengths) {
    keys.push_back("k" + std::to_string(keys.size()));
    values.push_back(ValueOf(length, static_cast<char>(keys.size())));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    rows.push_back({B(keys[i]), B(values[values.size() - 1 - i])});
    writes.push_back({PANDO_WRITE_REPLACE, B(keys[i]), B(values[i]), rows[i].value, 0});
    asked.push_back(B(keys[i]));
  }
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK,
               pando_multi_put(session_, large_, rows.data(), rows.size(), nullptr, &list));
  EXPECT_EQ(TakeResults(list), std::vector<std::string>(keys.size()));
  ASSERT_GIVES(PANDO_OK,
               pando_write_many(session_, large_, writes.data(), writes.size(), nullptr, &list));
  EXPECT_EQ(TakeResults(list), std::vector<std::string>(keys.size()));
  ASSERT_GIVES(PANDO_OK,
               pando_multi_get(session_, large_, asked.data(), asked.size(), nullptr, &list));
  EXPECT_EQ(TakeResults(list), values);

  std::vector<std::pair<std::string, std::string>> all;
  for (size_t i = 0; i < keys.size(); ++i) all.emplace_back(keys[i], values[i]);
  pando_cursor_options range = PANDO_CURSOR_OPTIONS_INIT;
  ASSERT_GIVES(PANDO_OK, pando_scan(session_, large_, &range, &list));
  EXPECT_EQ(TakeRows(list), all);
  pando_cursor* cursor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, large_, &range, &cursor));
  pando_row row;
  for (const auto& [key, value] : all) {
    ASSERT_GIVES(PANDO_OK, pando_cursor_next(cursor, &row));
    EXPECT_EQ(S(row.key), key);
    EXPECT_EQ(S(row.value), value);
  }
  ASSERT_GIVES(PANDO_OK, pando_cursor_seek(cursor, B("k0"), &row));
  EXPECT_EQ(S(row.value), values[0]);
  EXPECT_GIVES(PANDO_OK, pando_close_cursor(cursor));

  pando_size_estimate size = {};
  size.size = sizeof(size);
  ASSERT_GIVES(PANDO_OK, pando_estimate_size(session_, large_, 0, nullptr, &size));
  pando_check_options how = PANDO_CHECK_OPTIONS_INIT;
  how.quiet_tree = 1;
  pando_check_report report = {};
  report.size = sizeof(report);
  ASSERT_GIVES(PANDO_OK, pando_check(session_, large_, &how, &report, nullptr));
  EXPECT_EQ(report.problems, 0u);
  EXPECT_EQ(report.cells, 6u);
  EXPECT_EQ(report.cells_unused, 0u);
  EXPECT_GT(report.cells_bytes, 2 * kMostBytes);
  EXPECT_EQ(size.cells_bytes, report.cells_bytes);
  EXPECT_EQ(size.value_bytes, report.value_bytes);
}

}  // namespace
}  // namespace pando::c
