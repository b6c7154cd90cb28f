#include "bench/history/history_io.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace pando::history {
namespace {

using Json = nlohmann::json;

constexpr OperationKind kKinds[] = {
    OperationKind::kGet,     OperationKind::kPut,     OperationKind::kInsert,
    OperationKind::kUpdate,  OperationKind::kDelete,  OperationKind::kScan,
    OperationKind::kReplace, OperationKind::kEraseIf, OperationKind::kUpsert};

const char* UpsertKindName(UpsertKind kind) { return kind == UpsertKind::kAdd ? "add" : "append"; }

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

absl::StatusOr<std::string> TakeString(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_string())
    return Bad(absl::StrCat("needs \"", name, "\""));
  return found->get<std::string>();
}

absl::StatusOr<int64_t> TakeTime(const Json& value, const char* name) {
  constexpr int64_t kMost = int64_t{1} << 62;
  if (!value.is_number_integer()) return Bad(absl::StrCat("\"", name, "\" is not an integer"));
  const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kMost};
  if (too_large || value.get<int64_t>() < -kMost)
    return Bad(absl::StrCat("\"", name, "\" out of range"));
  return value.get<int64_t>();
}

absl::Status TakeTimes(const Json& record, Operation* operation) {
  const auto call = record.find("call"), returned = record.find("return");
  if (call == record.end() || returned == record.end()) return Bad("needs \"call\" and \"return\"");
  PANDO_ASSIGN_OR_RETURN(operation->call_ns, TakeTime(*call, "call"));
  if (returned->is_null()) {
    operation->return_ns = kNeverReturned;
    const auto latest = record.find("latest");
    if (latest == record.end()) return absl::OkStatus();
    PANDO_ASSIGN_OR_RETURN(operation->latest_ns, TakeTime(*latest, "latest"));
    if (operation->latest_ns < operation->call_ns) return Bad("\"latest\" is before its call");
    return absl::OkStatus();
  }
  PANDO_ASSIGN_OR_RETURN(operation->return_ns, TakeTime(*returned, "return"));
  if (operation->return_ns < operation->call_ns) return Bad("returns before its call");
  return absl::OkStatus();
}

absl::Status TakeScan(const Json& record, Operation* operation) {
  PANDO_ASSIGN_OR_RETURN(operation->key, TakeString(record, "from"));
  if (record.contains("to")) {
    PANDO_ASSIGN_OR_RETURN(operation->to, TakeString(record, "to"));
  }
  const auto limit = record.find("limit"), rows = record.find("rows");
  if (limit == record.end() || !limit->is_number_unsigned())
    return Bad("a scan needs \"limit\" >= 0");
  operation->limit = limit->get<size_t>();
  if (operation->unknown()) return absl::OkStatus();
  const bool has_rows = rows != record.end() && rows->is_array();
  if (!has_rows && operation->limit > 0) return Bad("a scan that returned needs \"rows\"");
  if (!has_rows) return absl::OkStatus();
  for (const Json& row : *rows) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_string()) {
      return Bad("a row of a scan is [\"key\",\"value\"]");
    }
    operation->rows.emplace_back(row[0].get<std::string>(), row[1].get<std::string>());
  }
  return absl::OkStatus();
}

// What conditional operations say beside key, value and found.
absl::Status TakeCondition(const Json& record, Operation* operation) {
  if (operation->kind != OperationKind::kUpsert) {
    PANDO_ASSIGN_OR_RETURN(operation->expected, TakeString(record, "expected"));
  } else {
    PANDO_ASSIGN_OR_RETURN(operation->operand, TakeString(record, "operand"));
    PANDO_ASSIGN_OR_RETURN(const std::string function, TakeString(record, "function"));
    if (function != "add" && function != "append") {
      return Bad(absl::StrCat("unknown function \"", function, "\""));
    }
    operation->upsert = function == "add" ? UpsertKind::kAdd : UpsertKind::kAppend;
  }
  if (operation->unknown() || operation->found) return absl::OkStatus();
  const auto actual = record.find("actual");
  if (actual == record.end() || !(actual->is_null() || actual->is_string())) {
    return Bad("was refused and needs \"actual\"");
  }
  if (actual->is_string()) operation->actual = actual->get<std::string>();
  return absl::OkStatus();
}

absl::Status TakeSingle(const Json& record, Operation* operation) {
  PANDO_ASSIGN_OR_RETURN(operation->key, TakeString(record, "key"));
  const OperationKind kind = operation->kind;
  if (kind != OperationKind::kPut && !operation->unknown()) {
    const auto found = record.find("found");
    if (found == record.end() || !found->is_boolean()) return Bad("needs \"found\"");
    operation->found = found->get<bool>();
  }
  if (IsConditional(kind)) PANDO_RETURN_IF_ERROR(TakeCondition(record, operation));
  const bool needs_value =
      kind == OperationKind::kPut || kind == OperationKind::kInsert ||
      kind == OperationKind::kUpdate || kind == OperationKind::kReplace ||
      ((kind == OperationKind::kGet || kind == OperationKind::kUpsert) && operation->found);
  if (!needs_value) return absl::OkStatus();
  PANDO_ASSIGN_OR_RETURN(operation->value, TakeString(record, "value"));
  return absl::OkStatus();
}

absl::StatusOr<Operation> ParseOperation(const Json& record) {
  Operation operation;
  PANDO_ASSIGN_OR_RETURN(const std::string name, TakeString(record, "op"));
  std::optional<OperationKind> kind;
  for (OperationKind known : kKinds) {
    if (name == OperationKindName(known)) kind = known;
  }
  if (!kind.has_value()) return Bad(absl::StrCat("unknown op \"", name, "\""));
  operation.kind = *kind;
  if (const auto client = record.find("client"); client != record.end()) {
    if (!client->is_number_integer()) return Bad("\"client\" is not an integer");
    operation.client = client->get<int32_t>();
  }
  PANDO_RETURN_IF_ERROR(TakeTimes(record, &operation));
  PANDO_RETURN_IF_ERROR(operation.kind == OperationKind::kScan ? TakeScan(record, &operation)
                                                               : TakeSingle(record, &operation));
  return operation;
}

// A get of a clear becomes that. True: the delete of one, which its get says better.
absl::StatusOr<bool> TakeClear(const Json& record, Operation* operation) {
  const auto clear = record.find("clear");
  if (clear == record.end()) return false;
  if (!clear->is_boolean()) return Bad("\"clear\" is not true or false");
  if (!clear->get<bool>()) return false;
  if (operation->kind == OperationKind::kDelete && operation->unknown()) return true;
  if (operation->kind != OperationKind::kGet || operation->found)
    return Bad("\"clear\" is of a delete of unknown outcome and of a get that finds nothing");
  operation->kind = OperationKind::kClear;
  return false;
}

// Calls `take` with each line that is not blank.
absl::Status ForEachLine(const std::string& path,
                         const std::function<absl::Status(uint32_t, const Json&)>& take) {
  std::ifstream in(path);
  if (!in) return Bad(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string line;
  for (uint32_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    absl::Status status = record.is_object() ? take(number, record) : Bad("not a JSON object");
    if (!status.ok()) return Annotate(status, absl::StrCat(path, ":", number));
  }
  if (in.bad()) return Bad(absl::StrCat(path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

class LineWriter {
 public:
  explicit LineWriter(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "we")) {}
  ~LineWriter() {
    if (file_ != nullptr) std::fclose(file_);
  }
  void Write(std::string line) {
    line.push_back('\n');
    if (file_ != nullptr) std::fwrite(line.data(), 1, line.size(), file_);
  }
  absl::Status Close() {
    const bool ok = file_ != nullptr && std::ferror(file_) == 0 && std::fclose(file_) == 0;
    file_ = nullptr;
    return ok ? absl::OkStatus()
              : absl::UnavailableError(
                    absl::StrCat("cannot write ", path_, ": ", std::strerror(errno)));
  }

 private:
  const std::string path_;
  std::FILE* file_;
};

}  // namespace

const char* OperationKindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kGet:
      return "get";
    case OperationKind::kPut:
      return "put";
    case OperationKind::kInsert:
      return "insert";
    case OperationKind::kUpdate:
      return "update";
    case OperationKind::kDelete:
      return "delete";
    case OperationKind::kScan:
      return "scan";
    case OperationKind::kClear:
      return "clear";  // in no file
    case OperationKind::kReplace:
      return "replace";
    case OperationKind::kEraseIf:
      return "erase_if";
    case OperationKind::kUpsert:
      return "upsert";
  }
  return "?";
}

std::string ToHex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

std::string FormatOperation(const Operation& operation, bool as_read) {
  const auto quoted = [as_read](std::string_view bytes) {
    return as_read ? Json(std::string(bytes)).dump() : absl::StrCat("\"", ToHex(bytes), "\"");
  };
  const std::string returned = operation.unknown() ? "null" : absl::StrCat(operation.return_ns);
  std::string line = absl::StrCat("{\"client\":", operation.client, ",\"op\":\"",
                                  OperationKindName(operation.kind), "\"");
  if (operation.kind == OperationKind::kScan) {
    absl::StrAppend(&line, ",\"from\":", quoted(operation.key));
    if (operation.to.has_value()) absl::StrAppend(&line, ",\"to\":", quoted(*operation.to));
    absl::StrAppend(&line, ",\"limit\":", operation.limit, ",\"rows\":[");
    const char* separator = "";
    for (const auto& [key, value] : operation.rows) {
      absl::StrAppend(&line, separator, "[", quoted(key), ",", quoted(value), "]");
      separator = ",";
    }
    absl::StrAppend(&line, "]");
  } else {
    const OperationKind kind = operation.kind;
    const bool no_value =
        kind == OperationKind::kDelete || kind == OperationKind::kEraseIf ||
        ((kind == OperationKind::kGet || kind == OperationKind::kUpsert) && !operation.found);
    absl::StrAppend(&line, ",\"key\":", quoted(operation.key),
                    ",\"value\":", no_value ? std::string("null") : quoted(operation.value),
                    ",\"found\":", operation.found ? "true" : "false");
    if (kind == OperationKind::kUpsert) {
      absl::StrAppend(&line, ",\"function\":\"", UpsertKindName(operation.upsert),
                      "\",\"operand\":", quoted(operation.operand));
    } else if (IsConditional(kind)) {
      absl::StrAppend(&line, ",\"expected\":", quoted(operation.expected));
    }
    if (IsConditional(kind)) {
      absl::StrAppend(
          &line, ",\"actual\":", operation.actual.has_value() ? quoted(*operation.actual) : "null");
    }
  }
  absl::StrAppend(&line, ",\"call\":", operation.call_ns, ",\"return\":", returned);
  if (operation.unknown() && operation.latest_ns != kAtAnyTime) {
    absl::StrAppend(&line, ",\"latest\":", operation.latest_ns);
  }
  line += '}';
  return line;
}

std::vector<Operation> AsDeleteAndGet(const Operation& clear) {
  std::vector<Operation> parts(2, clear);
  parts[0].kind = OperationKind::kDelete;
  parts[0].return_ns = kNeverReturned;
  parts[1].kind = OperationKind::kGet;
  return parts;
}

absl::Status WriteHistory(const std::vector<Operation>& operations, const std::string& path,
                          bool as_read) {
  LineWriter out(path);
  for (const Operation& operation : operations) {
    if (operation.kind != OperationKind::kClear) {
      out.Write(FormatOperation(operation, as_read));
      continue;
    }
    for (const Operation& part : AsDeleteAndGet(operation)) {
      std::string line = FormatOperation(part, as_read);
      out.Write(line.insert(line.size() - 1, ",\"clear\":true"));
    }
  }
  return out.Close();
}

absl::Status WriteState(const State& state, const std::string& path) {
  LineWriter out(path);
  for (const auto& [key, value] : state) {
    out.Write(absl::StrCat("{\"key\":\"", ToHex(key), "\",\"value\":\"", ToHex(value), "\"}"));
  }
  return out.Close();
}

absl::StatusOr<std::vector<Operation>> ReadHistory(const std::string& path) {
  std::vector<Operation> operations;
  PANDO_RETURN_IF_ERROR(ForEachLine(path, [&](uint32_t number, const Json& record) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(Operation operation, ParseOperation(record));
    operation.line = number;
    PANDO_ASSIGN_OR_RETURN(const bool of_clear, TakeClear(record, &operation));
    if (of_clear) return absl::OkStatus();
    operations.push_back(std::move(operation));
    return absl::OkStatus();
  }));
  if (operations.empty()) return Bad(absl::StrCat(path, ":1: no operations"));
  return operations;
}

absl::StatusOr<State> ReadState(const std::string& path) {
  State state;
  PANDO_RETURN_IF_ERROR(ForEachLine(path, [&](uint32_t, const Json& record) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(std::string key, TakeString(record, "key"));
    PANDO_ASSIGN_OR_RETURN(std::string value, TakeString(record, "value"));
    state.emplace_back(std::move(key), std::move(value));
    return absl::OkStatus();
  }));
  return state;
}

}  // namespace pando::history
