// Fuzz target: whatever comes from a peer is a message or DataLoss, and what is a message is
// written again as the same bytes.
#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "compute/peer/peer_format.h"

namespace pando {
namespace {

void CheckRequests(std::string_view bytes) {
  PeerMessageHeader header;
  std::vector<PeerNumberedRequest> requests;
  if (const absl::Status status = ParsePeerRequests(bytes, &header, &requests); !status.ok()) {
    PANDO_CHECK(absl::IsDataLoss(status) && requests.empty());
    return;
  }
  PeerMessageWriter writer;
  writer.StartRequests(header);
  for (const PeerNumberedRequest& numbered : requests) {
    PANDO_CHECK(writer.Add(numbered.number, numbered.left_us, numbered.request));
  }
  PANDO_CHECK(writer.bytes() == bytes);
}

void CheckAnswers(std::string_view bytes) {
  PeerMessageHeader header;
  std::vector<PeerAnswerView> answers;
  if (const absl::Status status = ParsePeerAnswers(bytes, &header, &answers); !status.ok()) {
    PANDO_CHECK(absl::IsDataLoss(status) && answers.empty());
    return;
  }
  PeerMessageWriter writer;
  writer.StartAnswers(header);
  PeerRequest scan{.operation = PeerRequest::Operation::kScan};
  scan.end = {"\xff", true};
  scan.rows_max = 10;
  for (const PeerAnswerView& view : answers) {
    PeerAnswer answer;
    view.CopyTo(&answer);
    PANDO_CHECK(writer.Add(view.number, answer));
    (void)CheckPeerAnswer(scan, view);
    scan.operation = PeerRequest::Operation::kEraseRange;
    (void)CheckPeerAnswer(scan, view);
    (void)CheckPeerAnswer({.operation = PeerRequest::Operation::kLend, .key = "key"}, view);
    scan.operation = PeerRequest::Operation::kScan;
    PeerRowReader reader(view.rows);
    size_t rows = 0;
    for (std::string_view key, value; reader.Next(&key, &value);) ++rows;
    PANDO_CHECK_EQ(rows, view.row_count);
  }
  PANDO_CHECK(writer.bytes() == bytes);
}

std::string Requests() {
  PeerMessageWriter writer;
  writer.StartRequests({{1, 2}, {3, 4}});
  uint32_t number = 0;
  PeerRequest request{.tree_id = 9, .key = "key"};
  writer.Add(number++, 5, request);
  request.operation = PeerRequest::Operation::kWrite;
  request.value = "value";
  request.expected = "expected";
  for (int kind = 0; kind <= static_cast<int>(Write::Kind::kUpsert); ++kind) {
    request.write = static_cast<Write::Kind>(kind);
    writer.Add(number++, kPeerNoDeadline, request);
  }
  request.operation = PeerRequest::Operation::kTake;
  writer.Add(number++, 6, request);
  request.operation = PeerRequest::Operation::kLend;
  writer.Add(number++, 6, request);
  request.operation = PeerRequest::Operation::kLoad;
  request.key = "";
  writer.Add(number++, 6, request);
  request.operation = PeerRequest::Operation::kScan;
  request.at = {"a", true};
  request.end = {std::string_view("\xff\xff"), true};
  request.down = true;
  request.rows_max = 100;
  writer.Add(number++, 7, request);
  request.operation = PeerRequest::Operation::kEraseRange;
  writer.Add(number++, 8, request);
  return std::string(writer.bytes());
}

std::string Answers() {
  PeerMessageWriter writer;
  writer.StartAnswers({{1, 2}, {3, 4}});
  PeerAnswer done, value, failed, rows, erased, lent, other;
  value.value = "value";
  failed.status = absl::UnavailableError("gone");
  rows.is_scan = true;
  rows.AddRow("a", "1");
  rows.AddRow("b", "");
  rows.SetReached({"c", false});
  erased.is_erasing = true;
  erased.erased = 12;
  erased.SetReached({"d", true});
  lent.is_lending = lent.lent = true;
  lent.lent_low = "a";
  lent.lent_high = "z";
  other.not_owner = true;
  uint32_t number = 0;
  for (const PeerAnswer* answer : {&done, &value, &failed, &rows, &erased, &lent, &other}) {
    writer.Add(number++, *answer);
  }
  return std::string(writer.bytes());
}

}  // namespace

std::vector<std::string> FuzzSeeds() { return {Requests(), Answers()}; }

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pando::CheckRequests(bytes);
  pando::CheckAnswers(bytes);
  return 0;
}
