#include "bench/ycsb/core_workload.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

struct Proportion {
  const char* property;
  OperationKind kind;
};
constexpr Proportion kProportions[] = {
    {"readproportion", OperationKind::kRead},
    {"updateproportion", OperationKind::kUpdate},
    {"insertproportion", OperationKind::kInsert},
    {"scanproportion", OperationKind::kScan},
    {"readmodifywriteproportion", OperationKind::kRmw},
};

// Hands out properties one by one, and knows in the end which were not asked for.
class Reader {
 public:
  explicit Reader(const Properties& properties) : rest_(properties) {}

  // Nothing: the property is absent. Java keeps blanks at the end of a line; no property here means
  // anything by them.
  std::optional<std::string> Text(std::string_view name) {
    const auto at = rest_.find(name);
    if (at == rest_.end()) return std::nullopt;
    std::string value = std::move(at->second);
    rest_.erase(at);
    absl::StripTrailingAsciiWhitespace(&value);
    return value;
  }

  std::optional<uint64_t> Number(const std::string& name, uint64_t most) {
    const std::optional<std::string> text = Text(name);
    if (!text.has_value()) return std::nullopt;
    uint64_t number = 0;
    if (!absl::SimpleAtoi(*text, &number) || number > most) {
      Wrong(name, *text, absl::StrCat("a number up to ", most));
    }
    return number;
  }

  std::optional<double> Real(const std::string& name) {
    const std::optional<std::string> text = Text(name);
    if (!text.has_value()) return std::nullopt;
    double number = 0;
    if (!absl::SimpleAtod(*text, &number) || !std::isfinite(number) || number < 0) {
      Wrong(name, *text, "a number that is not negative");
    }
    return number;
  }

  // A property that may only have this value here.
  void Only(const std::string& name, const std::string& value, const std::string& because) {
    const std::optional<std::string> text = Text(name);
    if (text.has_value() && *text != value) {
      Wrong(name, *text, absl::StrCat(value, ": ", because));
    }
  }

  void Wrong(const std::string& name, const std::string& value, const std::string& wanted) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(name, " is '", value, "', but has to be ", wanted)));
  }

  void Note(const absl::Status& status) { status_.Update(status); }

  const absl::Status& status() const { return status_; }
  std::vector<std::string> rest() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : rest_) names.push_back(name);
    return names;
  }

 private:
  Properties rest_;
  absl::Status status_;
};

void ReadMix(Reader* reader, Workload* workload) {
  bool given = false;
  for (const auto& [property, kind] : kProportions) {
    const std::optional<double> share = reader->Real(property);
    if (!share.has_value()) continue;
    given = true;
    workload->shares[static_cast<size_t>(kind)] = *share;
  }
  if (!given) return;
  double sum = 0;
  for (const double share : workload->shares) sum += share;
  if (!(sum > 0)) reader->Wrong("readproportion", "0", "above 0, or another proportion");
  for (double& share : workload->shares) share /= sum;
}

void ReadScans(Reader* reader, Workload* workload) {
  constexpr uint64_t kMost = 1'000'000;
  if (const auto least = reader->Number("minscanlength", kMost)) {
    workload->scan_length_min = static_cast<uint32_t>(*least);
  }
  if (const auto most = reader->Number("maxscanlength", kMost)) {
    workload->scan_length_max = static_cast<uint32_t>(*most);
  }
  if (auto lengths = reader->Text("scanlengthdistribution")) {
    workload->scan_lengths = *std::move(lengths);
  }
  reader->Note(CheckScanLengths(*workload));
}

void ReadDistribution(Reader* reader, DistributionOptions* distribution) {
  if (auto name = reader->Text("requestdistribution")) distribution->name = *std::move(name);
  if (const auto share = reader->Real("hotspotdatafraction")) distribution->hotspot_items = *share;
  if (const auto share = reader->Real("hotspotopnfraction")) {
    distribution->hotspot_operations = *share;
  }
  if (const auto percent = reader->Real("exponential.percentile")) {
    distribution->exponential_operations = *percent / 100;
  }
  if (const auto share = reader->Real("exponential.frac")) distribution->exponential_items = *share;
}

void ReadKeys(Reader* reader, bool chosen_by_flag, KeyOptions* keys) {
  const std::optional<std::string> order = reader->Text("insertorder");
  if (order.has_value() && *order != "hashed" && *order != "ordered") {
    reader->Wrong("insertorder", *order, "hashed or ordered");
  }
  if (order.has_value() && !chosen_by_flag) {
    keys->kind = *order == "hashed" ? "user" : "user_ordered";
  }
  if (const auto digits = reader->Number("zeropadding", 251)) {
    keys->zero_padding = static_cast<uint32_t>(*digits);
  }
}

// Of one value: its length.
void ReadFields(Reader* reader, bool chosen_by_flag, Plan* plan) {
  constexpr uint64_t kMost = std::numeric_limits<uint16_t>::max();
  reader->Only("fieldlengthdistribution", "constant",
               "all values of a tree are as long as another");
  const std::optional<uint64_t> fields = reader->Number("fieldcount", kMost);
  const std::optional<uint64_t> bytes = reader->Number("fieldlength", kMost);
  if (chosen_by_flag || !(fields.has_value() || bytes.has_value())) return;
  plan->value_bytes = static_cast<uint32_t>(fields.value_or(1) * bytes.value_or(100));
  if (plan->value_bytes > kValueBytesMax) {
    reader->Wrong(
        "fieldcount x fieldlength", absl::StrCat(plan->value_bytes),
        absl::StrCat("at most ", kValueBytesMax, " bytes, as values are: add -p fieldlength=",
                     kValueBytesMax / std::max<uint64_t>(fields.value_or(1), 1),
                     ", or --value_bytes, to run it with shorter ones"));
  }
}

}  // namespace

const Properties& CoreWorkloadDefaults() {
  static const Properties* const kDefaults = new Properties{
      {"fieldcount", "10"},
      {"fieldlength", "100"},
      {"readproportion", "0.95"},
      {"updateproportion", "0.05"},
      {"insertproportion", "0"},
      {"scanproportion", "0"},
      {"readmodifywriteproportion", "0"},
      {"requestdistribution", "uniform"},
      {"minscanlength", "1"},
      {"maxscanlength", "1000"},
      {"scanlengthdistribution", "uniform"},
      {"insertorder", "hashed"},
      {"zeropadding", "1"},
  };
  return *kDefaults;
}

absl::StatusOr<std::vector<std::string>> ApplyCoreWorkload(
    const Properties& properties, const std::function<bool(const char*)>& flag_is_given,
    Plan* plan) {
  Reader reader(properties);
  if (const auto kind = reader.Text("workload");
      kind.has_value() && !std::string_view(*kind).ends_with(".CoreWorkload")) {
    reader.Wrong("workload", *kind, "site.ycsb.workloads.CoreWorkload");
  }
  const auto records = reader.Number("recordcount", uint64_t{1} << 40);
  if (records.has_value() && !flag_is_given("records")) plan->records = *records;
  const auto operations = reader.Number("operationcount", uint64_t{1} << 48);
  if (operations.has_value() && !flag_is_given("operations")) plan->operations = *operations;
  const auto seconds = reader.Real("maxexecutiontime");
  if (seconds.has_value() && !flag_is_given("duration")) plan->duration_s = *seconds;
  const auto rate = reader.Real("target");
  if (rate.has_value() && !flag_is_given("rate")) plan->rate = *rate;
  // A thread of YCSB has one operation in flight, as a coroutine has here.
  const auto threads = reader.Number("threadcount", 1024);
  if (threads.has_value() && !flag_is_given("coroutines") && !flag_is_given("threads")) {
    plan->coroutines = static_cast<int>(*threads);
  }
  if (auto tree = reader.Text("table"); tree.has_value() && !flag_is_given("tree")) {
    plan->tree = *std::move(tree);
  }
  ReadMix(&reader, &plan->workload);
  ReadScans(&reader, &plan->workload);
  DistributionOptions distribution = plan->distribution;
  ReadDistribution(&reader, &distribution);
  if (flag_is_given("distribution")) distribution.name = plan->distribution.name;
  plan->distribution = distribution;
  ReadKeys(&reader, flag_is_given("keys"), &plan->keys);
  ReadFields(&reader, flag_is_given("value_bytes"), plan);
  // Fields are one value: all of it is read.
  reader.Text("readallfields");
  reader.Only("insertstart", "0", "records are numbered from 0");
  reader.Only("dataintegrity", "false", "--history checks what is read");
  PANDO_RETURN_IF_ERROR(reader.status());
  return reader.rest();
}

}  // namespace pando::bench
