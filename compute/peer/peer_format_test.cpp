// Messages of peers, byte by byte; peer_fuzz.cpp has what is no message.
#include "compute/peer/peer_format.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr PeerMessageHeader kHeader{{1, 2}, {3, 4}};

PeerRequest RandomRequest(Random* random, std::vector<std::string>* strings) {
  const auto text = [&](size_t least, size_t most) -> std::string_view {
    std::string bytes(least + random->Uniform(most - least + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random->Next());
    strings->push_back(std::move(bytes));
    return strings->back();
  };
  PeerRequest request;
  request.operation = static_cast<PeerRequest::Operation>(random->Uniform(7));
  request.tree_id = static_cast<uint32_t>(random->Next());
  if (request.operation == PeerRequest::Operation::kScan) {
    request.down = random->Chance(0.5);
    request.rows_max = static_cast<uint16_t>(1 + random->Uniform(65'535));
    request.at = {text(0, kPeerKeyBytesMax), random->Chance(0.5)};
    request.end = {text(0, kPeerKeyBytesMax), random->Chance(0.5)};
    return request;
  }
  if (request.operation == PeerRequest::Operation::kEraseRange) {
    request.at = {text(0, kPeerKeyBytesMax), random->Chance(0.5)};
    request.end = {text(0, kPeerKeyBytesMax), random->Chance(0.5)};
    return request;
  }
  if (request.operation == PeerRequest::Operation::kTake ||
      request.operation == PeerRequest::Operation::kLoad ||
      request.operation == PeerRequest::Operation::kLend) {
    request.key = text(0, kPeerKeyBytesMax);
    if (request.operation == PeerRequest::Operation::kTake) {
      request.value = text(0, kPeerValueBytesMax);
    }
    return request;
  }
  request.key = text(1, kPeerKeyBytesMax);
  if (request.operation == PeerRequest::Operation::kGet) return request;
  request.write = static_cast<Write::Kind>(random->Uniform(7));
  request.value = text(0, kPeerValueBytesMax);
  request.expected = text(0, kPeerValueBytesMax);
  request.function = static_cast<UpsertFunction>(random->Next());
  return request;
}

void ExpectSame(const PeerRequest& a, const PeerRequest& b) {
  ASSERT_EQ(a.operation, b.operation);
  EXPECT_EQ(a.tree_id, b.tree_id);
  if (a.operation == PeerRequest::Operation::kScan ||
      a.operation == PeerRequest::Operation::kEraseRange) {
    EXPECT_EQ(a.at, b.at);
    EXPECT_EQ(a.end, b.end);
    EXPECT_EQ(a.down, b.down);
    EXPECT_EQ(a.rows_max, b.rows_max);
    return;
  }
  EXPECT_EQ(a.key, b.key);
  if (a.is_read()) {
    EXPECT_EQ(a.value, b.value);
    return;
  }
  EXPECT_EQ(a.write, b.write);
  const bool erases = a.write == Write::Kind::kErase || a.write == Write::Kind::kEraseIf;
  EXPECT_EQ(erases ? "" : a.value, b.value);
  const bool expects = a.write == Write::Kind::kReplace || a.write == Write::Kind::kEraseIf;
  EXPECT_EQ(expects ? a.expected : "", b.expected);
  EXPECT_TRUE(a.write != Write::Kind::kUpsert || a.function == b.function);
}

TEST(PeerFormat, RequestsComeBackAsTheyWere) {
  Random random(1);
  for (int run = 0; run < 500; ++run) {
    std::vector<std::string> strings;
    strings.reserve(1000);
    std::vector<PeerRequest> requests;
    PeerMessageWriter writer;
    writer.StartRequests(kHeader);
    size_t bytes_max = 0;
    for (;;) {
      const PeerRequest request = RandomRequest(&random, &strings);
      if (!writer.Add(static_cast<uint32_t>(requests.size()), run, request)) break;
      requests.push_back(request);
      bytes_max += PeerRequestBytes(request);
      if (random.Chance(0.02)) break;
    }
    const std::string message(writer.bytes());
    EXPECT_LE(message.size(), kPeerMessageBytesMax);
    EXPECT_LE(message.size(), 16 + bytes_max);
    PeerMessageHeader header;
    std::vector<PeerNumberedRequest> parsed;
    ASSERT_TRUE(ParsePeerRequests(message, &header, &parsed).ok());
    EXPECT_EQ(header, kHeader);
    ASSERT_EQ(parsed.size(), requests.size());
    for (size_t i = 0; i < parsed.size(); ++i) {
      EXPECT_EQ(parsed[i].number, i);
      EXPECT_EQ(parsed[i].left_us, static_cast<uint64_t>(run));
      ExpectSame(requests[i], parsed[i].request);
    }
    // Neither a part of it nor more of it is a message.
    EXPECT_TRUE(absl::IsDataLoss(
        ParsePeerRequests(message.substr(0, random.Uniform(message.size())), &header, &parsed)));
    EXPECT_TRUE(absl::IsDataLoss(ParsePeerRequests(message + "x", &header, &parsed)));
    std::vector<PeerAnswerView> answers;
    EXPECT_TRUE(absl::IsDataLoss(ParsePeerAnswers(message, &header, &answers)));
  }
}

PeerAnswer SentAndTaken(const PeerAnswer& answer) {
  PeerMessageWriter writer;
  writer.StartAnswers(kHeader);
  EXPECT_TRUE(writer.Add(7, answer));
  PeerMessageHeader header;
  std::vector<PeerAnswerView> views;
  EXPECT_TRUE(ParsePeerAnswers(writer.bytes(), &header, &views).ok());
  EXPECT_EQ(views.at(0).number, 7u);
  PeerAnswer taken;
  taken.value = taken.rows = "of an earlier answer";
  views[0].CopyTo(&taken);
  return taken;
}

TEST(PeerFormat, AnswersComeBackAsTheyWere) {
  PeerAnswer answer;
  PeerAnswer taken = SentAndTaken(answer);
  EXPECT_TRUE(taken.status.ok());
  EXPECT_FALSE(taken.not_owner || taken.is_scan);
  EXPECT_EQ(taken.value, "");

  answer.value = std::string(kPeerValueBytesMax, 'v');
  EXPECT_EQ(SentAndTaken(answer).value, answer.value);

  answer.status = ConditionFailedError("differs");
  taken = SentAndTaken(answer);
  EXPECT_TRUE(IsConditionFailed(taken.status));
  EXPECT_EQ(taken.status.message(), "differs");
  EXPECT_EQ(taken.value, answer.value);

  answer.status = OutcomeUnknownError(std::string(5000, 'm'));
  taken = SentAndTaken(answer);
  EXPECT_TRUE(IsOutcomeUnknown(taken.status));
  EXPECT_EQ(taken.status.message().size(), kPeerTextBytesMax);
  EXPECT_EQ(taken.value, "");

  answer.status = absl::FailedPreconditionError("cut off");
  EXPECT_FALSE(IsConditionFailed(SentAndTaken(answer).status));

  answer.not_owner = true;
  taken = SentAndTaken(answer);
  EXPECT_TRUE(taken.not_owner);
  EXPECT_TRUE(taken.status.ok());
}

// Rows of every size fill an answer, and whatever fits an answer fits a message.
TEST(PeerFormat, AScanTakesRowsAsLongAsThereIsRoom) {
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{100}, kPeerKeyBytesMax}) {
    PeerAnswer answer;
    answer.is_scan = true;
    int rows = 0;
    while (answer.AddRow(std::string(bytes, 'k'), std::string(bytes, 'v'))) ++rows;
    EXPECT_GE(rows * 2 * (bytes + 1), kPeerMessageBytesMax - 300 - 2 * bytes);
    answer.SetReached({std::string_view(answer.rows).substr(1, bytes), true});
    const PeerAnswer taken = SentAndTaken(answer);
    EXPECT_TRUE(taken.is_scan && taken.more && taken.reached_after);
    EXPECT_EQ(taken.row_count, rows);
    EXPECT_EQ(taken.rows, answer.rows);
    EXPECT_EQ(taken.reached_key, std::string(bytes, 'k'));
  }
}

TEST(PeerFormat, AnAnswerHasToAnswerItsRequest) {
  PeerRequest up{.operation = PeerRequest::Operation::kScan};
  up.at = {"b", false};
  up.end = {"f", true};
  up.rows_max = 3;
  const auto check = [](const PeerRequest& request, std::vector<std::string> keys,
                        std::optional<PeerCut> reached = {}) {
    PeerAnswer answer;
    for (const std::string& key : keys) answer.AddRow(key, "");
    PeerAnswerView view;
    view.is_scan = true;
    view.rows = answer.rows;
    view.row_count = answer.row_count;
    view.more = reached.has_value();
    if (reached) view.reached = *reached;
    return CheckPeerAnswer(request, view).ok();
  };
  EXPECT_TRUE(check(up, {}));
  EXPECT_TRUE(check(up, {"b", "c", "f"}));
  EXPECT_FALSE(check(up, {"b", "c", "d", "e"})) << "too many";
  EXPECT_FALSE(check(up, {"a"}));
  EXPECT_FALSE(check(up, {"fa"}));
  EXPECT_FALSE(check(up, {"c", "c"}));
  EXPECT_FALSE(check(up, {"d", "c"}));
  EXPECT_TRUE(check(up, {"c"}, PeerCut{"c", true}));
  EXPECT_FALSE(check(up, {"d"}, PeerCut{"c", true})) << "a row behind what was reached";
  EXPECT_FALSE(check(up, {}, PeerCut{"b", false})) << "no step forward";
  EXPECT_FALSE(check(up, {}, PeerCut{"g", false})) << "beyond the end";

  PeerRequest down = up;
  std::swap(down.at, down.end);
  down.down = true;
  EXPECT_TRUE(check(down, {"f", "e", "b"}));
  EXPECT_FALSE(check(down, {"b", "c"}));
  EXPECT_FALSE(check(down, {"fa"}));
  EXPECT_FALSE(check(down, {"a"}));
  EXPECT_TRUE(check(down, {"d"}, PeerCut{"d", false}));
  EXPECT_FALSE(check(down, {"d"}, PeerCut{"d", true}));
  EXPECT_FALSE(check(down, {}, PeerCut{"f", true}));

  EXPECT_FALSE(CheckPeerAnswer(up, {}).ok()) << "no rows";
  PeerAnswerView rows;
  rows.is_scan = true;
  EXPECT_FALSE(CheckPeerAnswer({.key = "k"}, rows).ok());
  PeerAnswerView other;
  other.not_owner = true;
  EXPECT_TRUE(CheckPeerAnswer(up, other).ok());
}

TEST(PeerFormat, WhatIsLentHasTheKey) {
  const PeerRequest request{.operation = PeerRequest::Operation::kLend, .key = "k"};
  EXPECT_TRUE(request.is_read());
  PeerAnswer answer;
  answer.is_lending = true;
  PeerAnswer taken = SentAndTaken(answer);
  EXPECT_TRUE(taken.is_lending && !taken.lent && taken.lent_low.empty() && taken.lent_high.empty());
  answer.lent = true;
  answer.lent_low = std::string(kPeerKeyBytesMax, 'a');
  answer.lent_high = std::string(kPeerKeyBytesMax, 'z');
  taken = SentAndTaken(answer);
  EXPECT_TRUE(taken.lent);
  EXPECT_EQ(taken.lent_low, answer.lent_low);
  EXPECT_EQ(taken.lent_high, answer.lent_high);

  PeerAnswerView view;
  EXPECT_FALSE(CheckPeerAnswer(request, view).ok()) << "a value";
  view.is_lending = view.lent = true;
  EXPECT_TRUE(CheckPeerAnswer(request, view).ok());
  EXPECT_FALSE(CheckPeerAnswer({.key = "k"}, view).ok()) << "for a get";
  view.lent_low = "k";
  view.lent_high = "l";
  EXPECT_TRUE(CheckPeerAnswer(request, view).ok());
  view.lent_high = "k";
  EXPECT_FALSE(CheckPeerAnswer(request, view).ok()) << "it ends before the key";
  view.lent_low = "ka";
  view.lent_high = "";
  EXPECT_FALSE(CheckPeerAnswer(request, view).ok()) << "it begins behind the key";
}

TEST(PeerFormat, WhatIsErasedIsCountedAndGetsOn) {
  PeerRequest request{.operation = PeerRequest::Operation::kEraseRange};
  request.at = {"b", true};
  request.end = {"f", false};
  EXPECT_FALSE(request.is_read());
  PeerAnswer answer;
  answer.is_erasing = true;
  answer.erased = 0x1234'5678'9abc;
  PeerAnswer taken = SentAndTaken(answer);
  EXPECT_TRUE(taken.is_erasing && !taken.is_scan && !taken.more);
  EXPECT_EQ(taken.erased, answer.erased);
  answer.SetReached({"d", true});
  taken = SentAndTaken(answer);
  EXPECT_TRUE(taken.more && taken.reached_after);
  EXPECT_EQ(taken.reached_key, "d");
  EXPECT_EQ(taken.erased, answer.erased);

  PeerAnswerView view;
  EXPECT_FALSE(CheckPeerAnswer(request, view).ok()) << "done, but what?";
  view.is_erasing = true;
  EXPECT_TRUE(CheckPeerAnswer(request, view).ok());
  EXPECT_FALSE(CheckPeerAnswer({.key = "k"}, view).ok());
  view.more = true;
  view.reached = {"b", true};
  EXPECT_FALSE(CheckPeerAnswer(request, view).ok()) << "no step forward";
  view.reached = {"c", false};
  EXPECT_TRUE(CheckPeerAnswer(request, view).ok());
  view.reached = {"f", true};
  EXPECT_FALSE(CheckPeerAnswer(request, view).ok()) << "beyond the end";
  PeerAnswerView failed;
  failed.code = absl::StatusCode::kUnavailable;
  EXPECT_TRUE(CheckPeerAnswer(request, failed).ok());
}

}  // namespace
}  // namespace pando
