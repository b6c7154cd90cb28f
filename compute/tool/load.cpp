// pando load: the records of a text (records.h) into a tree.

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/tool/commands.h"
#include "compute/tool/input.h"
#include "compute/tool/progress.h"
#include "compute/tool/records.h"

namespace pando::tool {
namespace {

// An error is noticed once the whole batch has ended.
constexpr size_t kBatch = 128, kBatchBytes = 1 << 20;

TextFormat FormatOf(const Settings& settings) {
  if (settings.format == "tsv") return TextFormat::kTsv;
  if (settings.format == "csv") return TextFormat::kCsv;
  if (settings.format == "jsonl") return TextFormat::kJsonl;
  return TextFormat::kLines;
}

// For these records; of what they do not say, as a new tree of `pando create`.
TreeOptions OptionsFor(const Settings& settings, const Records& records) {
  TreeOptions options{.mode = settings.mode,
                      .narrow_reads = settings.narrow_reads,
                      .inline_value_bytes_max = settings.inline_value_bytes};
  if (!records.sorted().empty()) {
    options.key_bytes_max = static_cast<uint32_t>(records.key_bytes());
    options.value_bytes_max = static_cast<uint32_t>(records.value_bytes());
  }
  if (settings.key_bytes != 0) options.key_bytes_max = settings.key_bytes;
  if (settings.value_bytes_given) options.value_bytes_max = settings.value_bytes;
  return options;
}

// Before a tree is made that does not take them.
absl::Status CheckSizesGiven(const Settings& settings, const Records& records) {
  const auto check = [](const char* what, const char* flag, size_t given, size_t longest) {
    if (longest <= given) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", what, " of ", longest, " bytes, --", flag, " is ", given,
                     ": leave it out, or give ", longest, " or more"));
  };
  absl::Status status;
  if (settings.key_bytes != 0) {
    status = check("keys", "key_bytes", settings.key_bytes, records.key_bytes());
  }
  if (status.ok() && settings.value_bytes_given) {
    status = check("values", "value_bytes", settings.value_bytes, records.value_bytes());
  }
  return status;
}

// What a tree that is there has otherwise than the flags that are given say; "": nothing.
std::string OtherThanGiven(const Settings& settings, const Tree& tree) {
  if (settings.mode_given && tree.mode() != settings.mode) return "the other --mode";
  if (settings.narrow_reads_given && tree.narrow_reads() != settings.narrow_reads) {
    return "the other --narrow_reads";
  }
  // A limit above the longest value is none.
  const uint32_t inlined = std::min(settings.inline_value_bytes, tree.value_bytes_max());
  if (settings.inline_value_bytes != 0 && inlined != tree.inline_value_bytes_max()) {
    return absl::StrCat("--inline_value_bytes=", tree.inline_value_bytes_max());
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Tree>> OpenOrCreate(const Settings& settings, const Records& records,
                                                   Client* client) {
  const bool sizes_given = settings.key_bytes != 0 || settings.value_bytes_given;
  absl::StatusOr<std::unique_ptr<Tree>> tree = absl::NotFoundError("");
  if (!sizes_given) tree = client->OpenTree(settings.tree);
  if (absl::IsNotFound(tree.status())) {
    tree = client->CreateTree(settings.tree, OptionsFor(settings, records));
  }
  if (!tree.ok()) return tree.status();
  const std::string other = OtherThanGiven(settings, **tree);
  if (!other.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("tree '", settings.tree,
                                                      "' is there, and has ", other,
                                                      ": leave that out, or give another --tree"));
  }
  if (records.key_bytes() > (*tree)->key_bytes_max() ||
      records.value_bytes() > (*tree)->value_bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are keys of ", records.key_bytes(), " and values of ", records.value_bytes(),
        " bytes, tree '", settings.tree, "' takes ", (*tree)->key_bytes_max(), " and ",
        (*tree)->value_bytes_max(), ": give another --tree"));
  }
  return tree;
}

absl::Status PutRange(Session* session, const Tree& tree, const TextRecord* first,
                      const TextRecord* last, Progress* progress, std::atomic<bool>* failed) {
  std::vector<KeyValue> batch;
  while (first != last && !failed->load(std::memory_order_relaxed)) {
    batch.clear();
    size_t bytes = 0;
    for (; first != last && batch.size() < kBatch && bytes < kBatchBytes; ++first) {
      bytes += first->value.size();
      batch.push_back({std::string(first->key), std::string(first->value)});
    }
    absl::Status failure;
    for (const absl::Status& status : session->MultiPut(tree, batch)) {
      if (status.ok()) progress->Add(1, 1);
      if (failure.ok()) failure = status;
    }
    if (failure.ok()) continue;
    failed->store(true, std::memory_order_relaxed);
    return failure;
  }
  return absl::OkStatus();
}

// Each session puts one range of the sorted keys, so that sessions rarely meet in a leaf.
absl::Status PutAll(const Settings& settings, Client* client, const Tree& tree,
                    const std::vector<TextRecord>& records, Progress* progress) {
  const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
  const size_t sessions =
      settings.sessions > 0 ? static_cast<size_t>(settings.sessions) : std::min(cpus, 8u);
  std::atomic<bool> failed{false};
  std::vector<absl::Status> statuses(sessions);
  const auto put = [&](size_t i) {
    const TextRecord* const first = records.data() + records.size() * i / sessions;
    const TextRecord* const last = records.data() + records.size() * (i + 1) / sessions;
    const auto session = client->NewSession();
    return session.ok() ? PutRange(session->get(), tree, first, last, progress, &failed)
                        : session.status();
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sessions && !failed; ++i) {
    const absl::Status started = OrShortage([&] {
      threads.emplace_back([&, i] {
        statuses[i] = OrShortage([&] { return put(i); });
        if (!statuses[i].ok()) failed = true;
      });
      return absl::OkStatus();
    });
    if (started.ok()) continue;
    statuses[i] = started;
    failed = true;
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FillAtOnce(Client* client, const Tree& tree, const std::vector<TextRecord>& records,
                        Progress* progress) {
  const auto session = client->NewSession();
  if (!session.ok()) return session.status();
  size_t next = 0;
  return (*session)->BulkLoad(tree, [&](KeyValue* entry) {
    if (next == records.size()) return false;
    entry->key = records[next].key;
    entry->value = records[next].value;
    ++next;
    progress->Add(1, 1);
    return true;
  });
}

// Both ways leave the same tree when they are tried twice.
absl::Status FillTree(const Settings& settings, const Records& records, Client* client,
                      Progress* progress) {
  const auto tree = OpenOrCreate(settings, records, client);
  if (!tree.ok()) return tree.status();
  progress->Reset();
  if (settings.bulk) {
    const absl::Status status = FillAtOnce(client, **tree, records.sorted(), progress);
    if (status.ok()) return client->TreeStatus(**tree);
    if (IsOutcomeUnknown(status)) return status;
    if (!absl::IsFailedPrecondition(status)) {
      return Annotate(status, absl::StrCat("nothing is loaded into '", settings.tree, "'"));
    }
    progress->Reset();  // not empty
  }
  const absl::Status status = PutAll(settings, client, **tree, records.sorted(), progress);
  // What was put may have gone since, with a memory server.
  if (status.ok()) return client->TreeStatus(**tree);
  // What is there of an earlier attempt is not known.
  return Annotate(
      status, absl::StrCat("this time ", progress->keys(), " of ", records.sorted().size(),
                           " keys were put into '", settings.tree,
                           "', which keeps what else it has; the same ", "command again is right"));
}

std::string LoadedText(const Settings& settings, const Records& records, double seconds) {
  const auto milliseconds = static_cast<int64_t>(seconds * 1000);
  const std::string left_out =
      records.empty_lines() == 0
          ? ""
          : absl::StrCat("; ", records.empty_lines(), " empty lines left out");
  return absl::StrCat("loaded ", records.sorted().size(), " keys from ", records.lines(),
                      " lines into '", settings.tree, "' in ", milliseconds, " ms", left_out, "\n");
}

}  // namespace

absl::Status Load(const Settings& settings, const Arguments& arguments) {
  auto text = ReadInput(arguments[0]);
  if (!text.ok()) return text.status();
  const auto records =
      Records::Parse(*std::move(text), FormatOf(settings), NameOfInput(arguments[0]));
  if (!records.ok()) return records.status();
  absl::Status status = CheckSizesGiven(settings, *records);
  if (!status.ok()) return status;
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();

  double seconds = 0;
  {
    Progress progress("loaded", records->sorted().size(), settings.progress);
    status = FillTree(settings, *records, client->get(), &progress);
    if (absl::IsResourceExhausted(status)) {
      std::this_thread::sleep_for(kRestOfDroppedTrees);
      const absl::Status again = FillTree(settings, *records, client->get(), &progress);
      // Of an owned tree, whose records could not all come to their leaves, this client opens no
      // other handle: that is not why.
      if (!absl::IsFailedPrecondition(again)) status = again;
    }
    seconds = progress.Seconds();
  }
  return status.ok() ? Print(LoadedText(settings, *records, seconds)) : status;
}

}  // namespace pando::tool
