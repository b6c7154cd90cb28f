#include "compute/peer/peer_format.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr uint8_t kPeerVersion = 2;
constexpr size_t kCountAt = 2;
constexpr size_t kHeaderBytes = 16;
constexpr size_t kRequestFixedBytes = 4 + 8 + 4 + 1;
constexpr size_t kCutBytesMax = 1 + kPeerKeyBytesMax + 1;
// Number, outcome, whether there is more, how far, count.
constexpr size_t kScanFixedBytes = 4 + 1 + 1 + kCutBytesMax + 2;
constexpr size_t kRowsBytesMax = kPeerMessageBytesMax - kHeaderBytes - kScanFixedBytes;
static_assert(kRowsBytesMax >= 2 + kPeerKeyBytesMax + kPeerValueBytesMax);
static_assert(kHeaderBytes + kRequestFixedBytes + 4 + 3 + kPeerKeyBytesMax +
                  2 * kPeerValueBytesMax <=
              kPeerMessageBytesMax);
static_assert(kHeaderBytes + 4 + 1 + 1 + kPeerValueBytesMax + 2 + kPeerTextBytesMax <=
              kPeerMessageBytesMax);

constexpr uint8_t kGetByte = 0, kFirstWriteByte = 1;
constexpr auto kScanByte =
    static_cast<uint8_t>(kFirstWriteByte + static_cast<uint8_t>(Write::Kind::kUpsert) + 1);
constexpr uint8_t kTakeByte = kScanByte + 1, kLoadByte = kScanByte + 2, kEraseByte = kScanByte + 3;
constexpr uint8_t kLendByte = kScanByte + 4;

enum class Outcome : uint8_t {
  kDone,
  kValue,
  kRows,
  kNotOwner,
  kConditionFailed,
  kError,
  kErased,
  kLent
};

bool WritesValue(Write::Kind kind) {
  return kind != Write::Kind::kErase && kind != Write::Kind::kEraseIf;
}
bool Expects(Write::Kind kind) {
  return kind == Write::Kind::kReplace || kind == Write::Kind::kEraseIf;
}

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void PutString(std::string* bytes, std::string_view text, size_t bytes_max) {
  PANDO_CHECK_LE(text.size(), bytes_max);
  Put(bytes, static_cast<uint8_t>(text.size()));
  bytes->append(text);
}
void PutText(std::string* bytes, absl::string_view text) {
  text = text.substr(0, kPeerTextBytesMax);
  Put(bytes, static_cast<uint16_t>(text.size()));
  bytes->append(text.data(), text.size());
}
void PutCut(std::string* bytes, PeerCut cut) {
  PutString(bytes, cut.key, kPeerKeyBytesMax);
  Put(bytes, static_cast<uint8_t>(cut.after));
}

// Takes fields as views. Once something is wrong everything after it is, too.
class ViewReader {
 public:
  explicit ViewReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Take() {
    T value{};
    if (rest_.size() < sizeof(T)) return Fail(), value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view TakeBytes(size_t count, size_t least, size_t most) {
    if (count < least || count > most || count > rest_.size()) return Fail(), std::string_view();
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::string_view TakeKey() { return TakeBytes(Take<uint8_t>(), 1, kPeerKeyBytesMax); }
  std::string_view TakeBorder() { return TakeBytes(Take<uint8_t>(), 0, kPeerKeyBytesMax); }
  std::string_view TakeValue() { return TakeBytes(Take<uint8_t>(), 0, kPeerValueBytesMax); }
  std::string_view TakeText() { return TakeBytes(Take<uint16_t>(), 0, kPeerTextBytesMax); }
  bool TakeBool() {
    const auto value = Take<uint8_t>();
    if (value > 1) Fail();
    return value == 1;
  }
  PeerCut TakeCut() {
    PeerCut cut;
    cut.key = TakeBytes(Take<uint8_t>(), 0, kPeerKeyBytesMax);
    cut.after = TakeBool();
    return cut;
  }

  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

absl::Status NoMessage(char kind, std::string_view message) {
  return absl::DataLossError(absl::StrCat("no ", kind == 'Q' ? "requests" : "answers",
                                          " of a peer: ", message.size(), " bytes"));
}

PeerIdentity TakeIdentity(ViewReader* reader) {
  PeerIdentity identity;
  identity.compute_server = reader->Take<uint16_t>();
  identity.incarnation = reader->Take<uint32_t>();
  return identity;
}

// The number of requests or answers; 0: it is no such message.
size_t TakeHeader(ViewReader* reader, char kind, PeerMessageHeader* header) {
  if (reader->Take<char>() != kind || reader->Take<uint8_t>() != kPeerVersion) reader->Fail();
  const size_t count = reader->Take<uint16_t>();
  header->from = TakeIdentity(reader);
  header->to = TakeIdentity(reader);
  return reader->ok() ? count : 0;
}

PeerNumberedRequest TakeRequest(ViewReader* reader) {
  PeerNumberedRequest numbered;
  numbered.number = reader->Take<uint32_t>();
  numbered.left_us = reader->Take<uint64_t>();
  PeerRequest& request = numbered.request;
  request.tree_id = reader->Take<uint32_t>();
  const auto operation = reader->Take<uint8_t>();
  if (operation > kLendByte) reader->Fail();
  if (operation == kTakeByte || operation == kLoadByte || operation == kLendByte) {
    request.operation = operation == kTakeByte   ? PeerRequest::Operation::kTake
                        : operation == kLoadByte ? PeerRequest::Operation::kLoad
                                                 : PeerRequest::Operation::kLend;
    request.key = reader->TakeBorder();
    if (operation == kTakeByte) request.value = reader->TakeValue();
    return numbered;
  }
  if (operation == kEraseByte) {
    request.operation = PeerRequest::Operation::kEraseRange;
    request.at = reader->TakeCut();
    request.end = reader->TakeCut();
    return numbered;
  }
  if (operation == kScanByte) {
    request.operation = PeerRequest::Operation::kScan;
    request.down = reader->TakeBool();
    request.rows_max = reader->Take<uint16_t>();
    if (request.rows_max == 0) reader->Fail();
    request.at = reader->TakeCut();
    request.end = reader->TakeCut();
    return numbered;
  }
  request.key = reader->TakeKey();
  if (operation == kGetByte) return numbered;
  request.operation = PeerRequest::Operation::kWrite;
  request.write = static_cast<Write::Kind>(operation - kFirstWriteByte);
  if (request.write == Write::Kind::kUpsert) {
    request.function = static_cast<UpsertFunction>(reader->Take<uint32_t>());
  }
  if (WritesValue(request.write)) request.value = reader->TakeValue();
  if (Expects(request.write)) request.expected = reader->TakeValue();
  return numbered;
}

void TakeRows(ViewReader* reader, PeerAnswerView* answer) {
  answer->is_scan = true;
  answer->more = reader->TakeBool();
  if (answer->more) answer->reached = reader->TakeCut();
  answer->row_count = reader->Take<uint16_t>();
  const std::string_view before = reader->rest();
  for (uint16_t row = 0; row < answer->row_count && reader->ok(); ++row) {
    reader->TakeKey();
    reader->TakeValue();
  }
  if (!reader->ok()) return;
  answer->rows = before.substr(0, before.size() - reader->rest().size());
  if (answer->rows.size() > kRowsBytesMax) reader->Fail();
}

PeerAnswerView TakeAnswer(ViewReader* reader) {
  PeerAnswerView answer;
  answer.number = reader->Take<uint32_t>();
  switch (static_cast<Outcome>(reader->Take<uint8_t>())) {
    case Outcome::kDone:
      return answer;
    case Outcome::kValue:
      answer.has_value = true;
      answer.value = reader->TakeValue();
      // Nothing is said shorter.
      if (answer.value.empty()) reader->Fail();
      return answer;
    case Outcome::kRows:
      TakeRows(reader, &answer);
      return answer;
    case Outcome::kErased:
      answer.is_erasing = true;
      answer.more = reader->TakeBool();
      if (answer.more) answer.reached = reader->TakeCut();
      answer.erased = reader->Take<uint64_t>();
      return answer;
    case Outcome::kLent:
      answer.is_lending = true;
      answer.lent = reader->TakeBool();
      answer.lent_low = reader->TakeBorder();
      answer.lent_high = reader->TakeBorder();
      return answer;
    case Outcome::kNotOwner:
      answer.not_owner = true;
      return answer;
    case Outcome::kConditionFailed:
      answer.condition_failed = answer.has_value = true;
      answer.code = absl::StatusCode::kFailedPrecondition;
      answer.value = reader->TakeValue();
      answer.text = reader->TakeText();
      return answer;
    case Outcome::kError: {
      const auto code = reader->Take<uint8_t>();
      if (code == 0 || code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)) break;
      answer.code = static_cast<absl::StatusCode>(code);
      answer.text = reader->TakeText();
      return answer;
    }
  }
  reader->Fail();
  return answer;
}

template <typename Item, typename TakeItem>
absl::Status ParseItems(std::string_view message, char kind, TakeItem take,
                        PeerMessageHeader* header, std::vector<Item>* items) {
  items->clear();
  ViewReader reader(message.substr(0, kPeerMessageBytesMax));
  const size_t count = TakeHeader(&reader, kind, header);
  for (size_t i = 0; i < count && reader.ok(); ++i) items->push_back(take(&reader));
  if (count > 0 && reader.ok() && reader.rest().empty() && message.size() <= kPeerMessageBytesMax) {
    return absl::OkStatus();
  }
  items->clear();
  return NoMessage(kind, message);
}

}  // namespace

// --- Answers.

void PeerAnswer::Reset() {
  not_owner = is_scan = is_erasing = is_lending = more = lent = reached_after = false;
  row_count = 0;
  erased = 0;
  status = absl::OkStatus();
  value.clear();
  reached_key.clear();
  rows.clear();
  lent_low.clear();
  lent_high.clear();
}

bool PeerAnswer::AddRow(std::string_view key, std::string_view row_value) {
  if (rows.size() + 2 + key.size() + row_value.size() > kRowsBytesMax) return false;
  PANDO_CHECK(!key.empty());
  PutString(&rows, key, kPeerKeyBytesMax);
  PutString(&rows, row_value, kPeerValueBytesMax);
  ++row_count;
  return true;
}

void PeerAnswer::SetReached(PeerCut cut) {
  more = true;
  reached_key.assign(cut.key);
  reached_after = cut.after;
}

bool PeerRowReader::Next(std::string_view* key, std::string_view* value) {
  if (rest_.empty()) return false;
  ViewReader reader(rest_);
  *key = reader.TakeKey();
  *value = reader.TakeValue();
  PANDO_CHECK(reader.ok()) << "rows that were not parsed";
  rest_ = reader.rest();
  return true;
}

// --- Writing.

void PeerMessageWriter::Start(char kind, const PeerMessageHeader& header) {
  bytes_.clear();
  bytes_.reserve(2 * kPeerMessageBytesMax);  // what does not fit is put there, too
  count_ = 0;
  Put(&bytes_, kind);
  Put(&bytes_, kPeerVersion);
  Put(&bytes_, uint16_t{0});
  for (const PeerIdentity& identity : {header.from, header.to}) {
    Put(&bytes_, identity.compute_server);
    Put(&bytes_, identity.incarnation);
  }
  PANDO_CHECK_EQ(bytes_.size(), kHeaderBytes);
}

bool PeerMessageWriter::Keep(size_t before) {
  if (bytes_.size() > kPeerMessageBytesMax) {
    PANDO_CHECK_GT(count_, 0u) << "one alone does not fit a message";
    bytes_.resize(before);
    return false;
  }
  ++count_;
  return true;
}

std::string_view PeerMessageWriter::bytes() {
  PANDO_CHECK_GT(count_, 0u);
  std::memcpy(bytes_.data() + kCountAt, &count_, sizeof(count_));
  return bytes_;
}

bool PeerMessageWriter::Add(uint32_t number, uint64_t left_us, const PeerRequest& request) {
  const size_t before = bytes_.size();
  Put(&bytes_, number);
  Put(&bytes_, left_us);
  Put(&bytes_, request.tree_id);
  if (request.operation == PeerRequest::Operation::kScan) {
    PANDO_CHECK_GT(request.rows_max, 0u);
    Put(&bytes_, kScanByte);
    Put(&bytes_, static_cast<uint8_t>(request.down));
    Put(&bytes_, request.rows_max);
    PutCut(&bytes_, request.at);
    PutCut(&bytes_, request.end);
    return Keep(before);
  }
  if (request.operation == PeerRequest::Operation::kEraseRange) {
    Put(&bytes_, kEraseByte);
    PutCut(&bytes_, request.at);
    PutCut(&bytes_, request.end);
    return Keep(before);
  }
  if (request.operation == PeerRequest::Operation::kTake ||
      request.operation == PeerRequest::Operation::kLoad ||
      request.operation == PeerRequest::Operation::kLend) {
    const bool takes = request.operation == PeerRequest::Operation::kTake;
    const bool lends = request.operation == PeerRequest::Operation::kLend;
    Put(&bytes_, takes ? kTakeByte : lends ? kLendByte : kLoadByte);
    PutString(&bytes_, request.key, kPeerKeyBytesMax);
    if (takes) PutString(&bytes_, request.value, kPeerValueBytesMax);
    return Keep(before);
  }
  const bool writes = request.operation == PeerRequest::Operation::kWrite;
  const auto kind = static_cast<uint8_t>(request.write);
  Put(&bytes_, static_cast<uint8_t>(writes ? kFirstWriteByte + kind : kGetByte));
  PANDO_CHECK(!request.key.empty());
  PutString(&bytes_, request.key, kPeerKeyBytesMax);
  if (!writes) return Keep(before);
  if (request.write == Write::Kind::kUpsert) Put(&bytes_, static_cast<uint32_t>(request.function));
  if (WritesValue(request.write)) PutString(&bytes_, request.value, kPeerValueBytesMax);
  if (Expects(request.write)) PutString(&bytes_, request.expected, kPeerValueBytesMax);
  return Keep(before);
}

bool PeerMessageWriter::Add(uint32_t number, const PeerAnswer& answer) {
  const size_t before = bytes_.size();
  const auto put = [&](Outcome outcome) {
    Put(&bytes_, number);
    Put(&bytes_, outcome);
  };
  if (answer.not_owner) {
    put(Outcome::kNotOwner);
  } else if (IsConditionFailed(answer.status)) {
    put(Outcome::kConditionFailed);
    PutString(&bytes_, answer.value, kPeerValueBytesMax);
    PutText(&bytes_, answer.status.message());
  } else if (!answer.status.ok()) {
    put(Outcome::kError);
    Put(&bytes_, static_cast<uint8_t>(answer.status.code()));
    PutText(&bytes_, answer.status.message());
  } else if (answer.is_scan) {
    put(Outcome::kRows);
    Put(&bytes_, static_cast<uint8_t>(answer.more));
    if (answer.more) PutCut(&bytes_, {answer.reached_key, answer.reached_after});
    Put(&bytes_, answer.row_count);
    bytes_.append(answer.rows);
  } else if (answer.is_erasing) {
    put(Outcome::kErased);
    Put(&bytes_, static_cast<uint8_t>(answer.more));
    if (answer.more) PutCut(&bytes_, {answer.reached_key, answer.reached_after});
    Put(&bytes_, answer.erased);
  } else if (answer.is_lending) {
    put(Outcome::kLent);
    Put(&bytes_, static_cast<uint8_t>(answer.lent));
    PutString(&bytes_, answer.lent_low, kPeerKeyBytesMax);
    PutString(&bytes_, answer.lent_high, kPeerKeyBytesMax);
  } else if (answer.value.empty()) {
    put(Outcome::kDone);
  } else {
    put(Outcome::kValue);
    PutString(&bytes_, answer.value, kPeerValueBytesMax);
  }
  return Keep(before);
}

size_t PeerRequestBytes(const PeerRequest& request) {
  if (request.operation == PeerRequest::Operation::kScan ||
      request.operation == PeerRequest::Operation::kEraseRange) {
    return kRequestFixedBytes + 3 + 4 + request.at.key.size() + request.end.key.size();
  }
  return kRequestFixedBytes + 4 + 3 + request.key.size() + request.value.size() +
         request.expected.size();
}

// --- Reading.

absl::Status ParsePeerRequests(std::string_view message, PeerMessageHeader* header,
                               std::vector<PeerNumberedRequest>* requests) {
  return ParseItems(message, 'Q', TakeRequest, header, requests);
}

absl::Status ParsePeerAnswers(std::string_view message, PeerMessageHeader* header,
                              std::vector<PeerAnswerView>* answers) {
  return ParseItems(message, 'A', TakeAnswer, header, answers);
}

}  // namespace pando
