// Keys of 1 to 255 bytes and values of 0 to 255, any bytes, against std::map.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"

namespace pando {
namespace {

using Model = std::map<std::string, std::string>;

enum class Keys { kRandom, kLowAndHighBytes, kCommonPrefix, kRunsOfOneByte };

struct Shape {
  const char* name;
  uint32_t key_bytes, value_bytes;
  Keys keys;
};

class BytesTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    client_ = cluster_.NewClient();
    auto tree = client_->CreateTree(
        "t", {.key_bytes_max = GetParam().key_bytes, .value_bytes_max = GetParam().value_bytes});
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    auto session = client_->NewSession();
    ASSERT_OK(session);
    session_ = *std::move(session);
  }

  std::string Text(size_t bytes, std::string_view alphabet) {
    std::string text(bytes, '\0');
    for (char& c : text) {
      c = alphabet.empty() ? static_cast<char>(random_.Next())
                           : alphabet[random_.Uniform(alphabet.size())];
    }
    return text;
  }
  std::string RandomKey() {
    const uint32_t most = GetParam().key_bytes;
    switch (GetParam().keys) {
      case Keys::kRandom:
        return Text(1 + random_.Uniform(most), "");
      case Keys::kLowAndHighBytes:
        return Text(1 + random_.Uniform(most), {"\0\xff", 2});
      case Keys::kCommonPrefix:
        return std::string(200, '\xff') + Text(random_.Uniform(most - 200 + 1), {"\0a\xff", 3});
      case Keys::kRunsOfOneByte:
        return std::string(1 + random_.Uniform(most), "\0\x01\xfe\xff"[random_.Uniform(4)]);
    }
    return "";
  }
  std::string RandomValue() {
    // The extremes often.
    const uint64_t kind = random_.Uniform(4);
    const uint32_t most = GetParam().value_bytes;
    return Text(kind == 0 ? 0 : kind == 1 ? most : random_.Uniform(most + 1), "");
  }

  // A random operation, on the tree and on the model.
  void Operate(const std::string& key, const std::string& value) {
    const bool present = model_.contains(key);
    absl::Status status;
    absl::StatusCode expected = absl::StatusCode::kOk;
    bool writes = true;
    switch (random_.Uniform(6)) {
      case 0:
        status = session_->Erase(*tree_, key);
        if (!present) expected = absl::StatusCode::kNotFound;
        model_.erase(key);
        writes = false;
        break;
      case 1:
        status = session_->Update(*tree_, key, value);
        if (!present) expected = absl::StatusCode::kNotFound;
        writes = present;
        break;
      case 2:
        status = session_->Insert(*tree_, key, value);
        if (present) expected = absl::StatusCode::kAlreadyExists;
        writes = !present;
        break;
      default:
        status = session_->Put(*tree_, key, value);
    }
    ASSERT_EQ(status.code(), expected) << status;
    if (writes) model_[key] = value;
  }

  void ExpectGetsLikeTheModel(const std::string& key) {
    const auto found = session_->Get(*tree_, key);
    const auto expected = model_.find(key);
    if (expected == model_.end()) {
      ASSERT_TRUE(absl::IsNotFound(found.status())) << found.status();
    } else {
      ASSERT_OK(found);
      ASSERT_EQ(*found, expected->second);
    }
  }

  void ExpectScanLikeTheModel(const std::string& from, size_t limit) {
    std::vector<KeyValue> rows, expected;
    for (auto it = model_.lower_bound(from); it != model_.end() && expected.size() < limit; ++it) {
      expected.push_back({it->first, it->second});
    }
    ASSERT_OK(session_->Scan(*tree_, from, limit, &rows));
    ASSERT_EQ(rows, expected);
  }

  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
  Random random_{7};
  Model model_;
};

TEST_P(BytesTest, LikeAMap) {
  std::vector<std::string> keys;
  for (int i = 0; i < 3'000; ++i) {
    // Half of the time a key that was there once.
    const bool again = !keys.empty() && random_.Uniform(2) == 0;
    const std::string key = again ? keys[random_.Uniform(keys.size())] : RandomKey();
    keys.push_back(key);
    ASSERT_NO_FATAL_FAILURE(Operate(key, RandomValue()));
    ASSERT_NO_FATAL_FAILURE(ExpectGetsLikeTheModel(key));
    ASSERT_NO_FATAL_FAILURE(ExpectGetsLikeTheModel(RandomKey()));
    if (i % 50 == 0) {
      ASSERT_NO_FATAL_FAILURE(ExpectScanLikeTheModel(RandomKey(), random_.Uniform(120)));
    }
  }
  for (const std::string& key : keys) ASSERT_NO_FATAL_FAILURE(ExpectGetsLikeTheModel(key));
  ASSERT_NO_FATAL_FAILURE(ExpectScanLikeTheModel("", SIZE_MAX));
  ASSERT_NO_FATAL_FAILURE(ExpectScanLikeTheModel(std::string(GetParam().key_bytes, '\xff'), 10));
}

TEST_P(BytesTest, BulkLoadedAndChanged) {
  for (int i = 0; i < 2'000; ++i) model_[RandomKey()] = RandomValue();
  auto next = model_.begin();
  ASSERT_OK(session_->BulkLoad(*tree_, [&](KeyValue* entry) {
    if (next == model_.end()) return false;
    *entry = {next->first, next->second};
    ++next;
    return true;
  }));
  ASSERT_NO_FATAL_FAILURE(ExpectScanLikeTheModel("", SIZE_MAX));
  for (const auto& [key, value] : Model(model_)) {
    ASSERT_NO_FATAL_FAILURE(ExpectGetsLikeTheModel(key));
    ASSERT_NO_FATAL_FAILURE(Operate(key, RandomValue()));
    ASSERT_NO_FATAL_FAILURE(Operate(RandomKey(), RandomValue()));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectScanLikeTheModel("", SIZE_MAX));
}

INSTANTIATE_TEST_SUITE_P(Shapes, BytesTest,
                         testing::Values(Shape{"Bytes8", 8, 8, Keys::kRandom},
                                         Shape{"Bytes1", 1, 0, Keys::kRandom},
                                         Shape{"Bytes60", 60, 8, Keys::kLowAndHighBytes},
                                         Shape{"Bytes255", 255, 255, Keys::kRandom},
                                         Shape{"LowAndHigh", 255, 255, Keys::kLowAndHighBytes},
                                         Shape{"CommonPrefix", 255, 20, Keys::kCommonPrefix},
                                         Shape{"Runs", 255, 255, Keys::kRunsOfOneByte}),
                         [](const testing::TestParamInfo<Shape>& info) { return info.param.name; });

}  // namespace
}  // namespace pando
