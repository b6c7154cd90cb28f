// Whatever a program passes by mistake gets a code and a sentence, and changes nothing.
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

class CBadInputTest : public CTest {
 protected:
  char value_[kValueBytes];
  size_t size_ = 0;
};

TEST_F(CBadInputTest, NullInPlaceOfEveryHandle) {
  const pando_operation operation = PANDO_OPERATION_INIT;
  const auto callback = [](void*, const pando_answer*) {};
  const auto next = [](void*, pando_row*) { return 0; };
  pando_tree* tree;
  pando_session* session;
  pando_cursor* cursor;
  pando_executor* executor;
  pando_list* list;
  pando_row row;
  pando_tree_info info = {};
  info.size = sizeof(info);
  pando_client_stats stats = {};
  stats.size = sizeof(stats);
  int32_t flag;
  uint16_t id;
  const pando_bytes a = B("a");
  const std::vector<pando_code> codes = {
      pando_client_fenced(nullptr, &flag),
      pando_compute_server_id(nullptr, &id),
      pando_create_tree(nullptr, "x", nullptr, &tree),
      pando_open_tree(nullptr, "x", &tree),
      pando_drop_tree(nullptr, "x"),
      pando_get_tree_info(nullptr, &info),
      pando_tree_status(nullptr, tree_),
      pando_tree_status(client_, nullptr),
      pando_list_trees(nullptr, &list),
      pando_list_servers(nullptr, &list),
      pando_owner_of(nullptr, tree_, a, &list),
      pando_owner_of(client_, nullptr, a, &list),
      pando_list_ranges(client_, nullptr, &list),
      pando_list_members(nullptr, &list),
      pando_get_client_stats(nullptr, &stats),
      pando_open_session(nullptr, &session),
      pando_get(nullptr, tree_, a, value_, sizeof(value_), &size_, nullptr),
      pando_get(session_, nullptr, a, value_, sizeof(value_), &size_, nullptr),
      pando_put(nullptr, tree_, a, a, nullptr),
      pando_put(session_, nullptr, a, a, nullptr),
      pando_erase(nullptr, tree_, a, nullptr),
      pando_replace(nullptr, tree_, a, a, a, nullptr, 0, nullptr, nullptr),
      pando_erase_if(session_, nullptr, a, a, nullptr, 0, nullptr, nullptr),
      pando_upsert(session_, nullptr, a, 1, a, nullptr, 0, nullptr, nullptr),
      pando_multi_get(nullptr, tree_, &a, 1, nullptr, &list),
      pando_multi_erase(session_, nullptr, &a, 1, nullptr, &list),
      pando_write_many(nullptr, tree_, nullptr, 0, nullptr, &list),
      pando_flush(nullptr, tree_, nullptr),
      pando_scan(nullptr, tree_, nullptr, &list),
      pando_open_cursor(session_, nullptr, nullptr, &cursor),
      pando_cursor_next(nullptr, &row),
      pando_cursor_seek(nullptr, a, &row),
      pando_open_executor(nullptr, nullptr, &executor),
      pando_submit(nullptr, tree_, &operation, callback, nullptr),
      pando_execute(nullptr, tree_, &operation, &list),
      pando_bulk_load(session_, nullptr, next, nullptr),
      pando_sweep(nullptr, tree_, nullptr, nullptr),
      pando_list_size(nullptr, &size_),
  };
  for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], PANDO_INVALID_ARGUMENT) << i;
  // To close nothing is to do nothing.
  EXPECT_GIVES(PANDO_OK, pando_close_client(nullptr));
  EXPECT_GIVES(PANDO_OK, pando_close_tree(nullptr));
  EXPECT_GIVES(PANDO_OK, pando_close_session(nullptr));
  EXPECT_GIVES(PANDO_OK, pando_close_cursor(nullptr));
  EXPECT_GIVES(PANDO_OK, pando_close_executor(nullptr));
  EXPECT_GIVES(PANDO_OK, pando_close_list(nullptr));
}

TEST_F(CBadInputTest, NullWhereSomethingIsWrittenOrRead) {
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_connect(nullptr, nullptr));
  pando_client* client = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_connect(nullptr, &client)) << "no registry";
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_open_session(client_, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_open_tree(client_, "t", nullptr));
  pando_tree* tree = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_open_tree(client_, nullptr, &tree));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_drop_tree(client_, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_get_tree_info(tree_, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_client_fenced(client_, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_get_client_stats(client_, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_register_upsert(client_, 1024, nullptr, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_get(session_, tree_, B("a"), nullptr, 8, &size_, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_get(session_, tree_, B("a"), value_, 8, nullptr, nullptr));
  pando_list* list = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_multi_get(session_, tree_, nullptr, 3, nullptr, &list));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_multi_put(session_, tree_, nullptr, SIZE_MAX, nullptr, &list));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_multi_get(session_, tree_, nullptr, 0, nullptr, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_scan(session_, tree_, nullptr, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_bulk_load(session_, tree_, nullptr, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_check(session_, tree_, nullptr, nullptr, nullptr));
}

TEST_F(CBadInputTest, KeysAndValuesThatCannotBe) {
  const std::string longest(kValueBytes, 'k'), longer(kValueBytes + 1, 'k');
  EXPECT_GIVES(PANDO_OK, Put(longest, longest));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, Put(longer, "1"));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, Put("a", longer));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, Put("", "1"));
  EXPECT_EQ(Get(longer), "INVALID_ARGUMENT");
  // Sizes that nothing has: no byte of it is looked at.
  for (const size_t size : {(size_t{1} << 20) + 1, SIZE_MAX / 2, SIZE_MAX}) {
    const pando_bytes huge = pando_view("a", size);
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_put(session_, tree_, huge, B("1"), nullptr));
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_put(session_, tree_, B("a"), huge, nullptr));
    pando_list* list = nullptr;
    const pando_bytes keys[] = {B("a"), huge};
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_multi_get(session_, tree_, keys, 2, nullptr, &list));
    EXPECT_NE(std::string(pando_last_message()).find("element 1"), std::string::npos)
        << pando_last_message();
    pando_cursor_options range = PANDO_CURSOR_OPTIONS_INIT;
    range.from = huge;
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_scan(session_, tree_, &range, &list));
  }
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_put(session_, tree_, pando_view(nullptr, 3), B("1"), nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_put(session_, tree_, B("a"), pando_view(nullptr, 3), nullptr));
  EXPECT_EQ(Get("a"), "NOT_FOUND");
}

TEST_F(CBadInputTest, OptionsThatNobodyKnows) {
  pando_client* client = nullptr;
  const auto connect = [&](auto set) {
    pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
    options.registry = cluster_.registry().c_str();
    set(options);
    return pando_connect(&options, &client);
  };
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.size = 0; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.size = 12; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.size = SIZE_MAX; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.techniques = 3; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.owner = 2; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.connect_timeout_ms = 0; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               connect([](auto& o) { o.coroutines_per_session = int64_t{1} << 40; }));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, connect([](auto& o) { o.fabric = "carrier pigeon"; }));
  EXPECT_EQ(client, nullptr);

  pando_tree* tree = nullptr;
  pando_tree_options options = PANDO_TREE_OPTIONS_INIT;
  options.mode = 9;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "x", &options, &tree));
  options = PANDO_TREE_OPTIONS_INIT;
  options.narrow_reads = 2;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "x", &options, &tree));
  options = PANDO_TREE_OPTIONS_INIT;
  options.key_bytes_max = 256;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "x", &options, &tree));
  options.key_bytes_max = (uint64_t{1} << 32) + 8;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "x", &options, &tree));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, ".own", nullptr, &tree));
  const pando_write write = {7, B("a"), B("1"), {}, 0};
  pando_list* list = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_write_many(session_, tree_, &write, 1, nullptr, &list));
}

TEST_F(CBadInputTest, ProgramsWithOlderAndNewerHeaders) {
  // Older: no more than the limits of keys. What comes behind is not even readable.
  struct {
    size_t size;
    uint64_t key_bytes_max;
  } older = {sizeof(older), 12};
  pando_tree* tree = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "older",
                                           reinterpret_cast<pando_tree_options*>(&older), &tree));
  struct {
    size_t size;
    const char* name;
    uint64_t key_bytes_max, after;
  } info = {24, nullptr, 0, 77};
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(tree, reinterpret_cast<pando_tree_info*>(&info)));
  EXPECT_EQ(info.key_bytes_max, 12u);
  EXPECT_EQ(info.after, 77u);
  struct {
    pando_tree_options options;
    uint64_t newer;
  } newer = {PANDO_TREE_OPTIONS_INIT, 0};
  newer.options.size = sizeof(newer);
  EXPECT_GIVES(PANDO_OK, pando_create_tree(client_, "newer", &newer.options, &tree));
  newer.newer = 1;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "newest", &newer.options, &tree));
}

TEST_F(CBadInputTest, HandlesOfTheWrongKindOrClient) {
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_close_tree(reinterpret_cast<pando_tree*>(session_)));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_put(reinterpret_cast<pando_session*>(client_), tree_,
                                                 B("a"), B("1"), nullptr));
  int local = 0;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_close_client(reinterpret_cast<pando_client*>(&local)));
  pando_client* const other = Connect();
  pando_session* session = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_session(other, &session));
  EXPECT_EQ(Get(session, "a"), "INVALID_ARGUMENT");
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_tree_status(other, tree_));
  pando_executor* executor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_executor(other, nullptr, &executor));
  const pando_operation operation = PANDO_OPERATION_INIT;
  pando_list* list = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_execute(executor, tree_, &operation, &list));
  EXPECT_GIVES(PANDO_OK, pando_close_client(other));
}

TEST_F(CBadInputTest, MessagesAreEachThreadsOwn) {
  EXPECT_EQ(Get(std::string(kValueBytes + 1, 'k')), "INVALID_ARGUMENT");
  const std::string here = pando_last_message();
  EXPECT_NE(here.find("17 bytes"), std::string::npos) << here;
  std::thread([&] {
    EXPECT_STREQ(pando_last_message(), "");
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_drop_tree(client_, nullptr));
  }).join();
  EXPECT_EQ(pando_last_message(), here);
  EXPECT_GIVES(PANDO_OK, Put("a", "1"));
  EXPECT_EQ(pando_last_message(), here);
  // Longer than there is room for: cut, and still a text.
  EXPECT_GIVES(PANDO_NOT_FOUND, pando_drop_tree(client_, std::string(100, 'n').c_str()));
  const std::string no_registry = "/nonexistent/" + std::string(3000, 'n');
  pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
  options.registry = no_registry.c_str();
  options.connect_timeout_ms = 1;
  pando_client* client = nullptr;
  EXPECT_NE(pando_connect(&options, &client), PANDO_OK);
  EXPECT_EQ(strlen(pando_last_message()), 1023u);
  EXPECT_STREQ(pando_code_name(PANDO_CLOSED), "CLOSED");
  EXPECT_STREQ(pando_code_name(99), "?");
  EXPECT_STRNE(pando_version(), "");
}

}  // namespace
}  // namespace pando::c
