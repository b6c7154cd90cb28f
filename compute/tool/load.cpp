// pando load: the lines of a file as keys, their line numbers as values.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compute/tool/commands.h"
#include "compute/tool/input.h"

namespace pando::tool {
namespace {

constexpr size_t kBatch = 128;  // an error is noticed once the whole batch has ended
constexpr size_t kKeyBytesLimit = 255;

struct Line {
  std::string_view key;
  uint64_t number;
};

struct Lines {
  std::vector<Line> sorted;  // ascending, each key once with its last line number
  uint64_t total = 0;
  uint64_t empty = 0;
  size_t key_bytes = 0;  // of the longest
};

absl::StatusOr<Lines> SplitLines(std::string_view text, const std::string& path) {
  Lines lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view key = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++lines.total;
    if (key.size() > kKeyBytesLimit) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", lines.total, ": a line of ",
                                                     key.size(), " bytes; keys have at most ",
                                                     kKeyBytesLimit));
    }
    lines.key_bytes = std::max(lines.key_bytes, key.size());
    if (key.empty()) {
      ++lines.empty;
    } else {
      lines.sorted.push_back({key, lines.total});
    }
  }
  std::stable_sort(lines.sorted.begin(), lines.sorted.end(),
                   [](const Line& a, const Line& b) { return a.key < b.key; });
  size_t kept = 0;
  for (const Line& line : lines.sorted) {
    const bool repeated = kept > 0 && lines.sorted[kept - 1].key == line.key;
    lines.sorted[repeated ? kept - 1 : kept++] = line;
  }
  lines.sorted.resize(kept);
  return lines;
}

absl::StatusOr<std::unique_ptr<Tree>> OpenOrCreate(const Settings& settings, const Lines& lines,
                                                   Client* client) {
  const auto value_bytes = static_cast<uint32_t>(std::to_string(lines.total).size());
  const bool sizes_given = settings.key_bytes != 0 || settings.value_bytes_given;
  absl::StatusOr<std::unique_ptr<Tree>> tree = absl::NotFoundError("");
  if (!sizes_given) tree = client->OpenTree(settings.tree);
  if (absl::IsNotFound(tree.status())) {
    TreeOptions options{.mode = settings.mode};
    options.key_bytes_max = settings.key_bytes != 0
                                ? settings.key_bytes
                                : static_cast<uint32_t>(std::max<size_t>(lines.key_bytes, 1));
    options.value_bytes_max = settings.value_bytes_given ? settings.value_bytes : value_bytes;
    tree = client->CreateTree(settings.tree, options);
  }
  if (!tree.ok()) return tree.status();
  if (settings.mode_given && (*tree)->mode() != settings.mode) {
    return absl::FailedPreconditionError(
        absl::StrCat("tree '", settings.tree,
                     "' is there, and has the other --mode: leave that out, "
                     "or give another --tree"));
  }
  if (lines.key_bytes > (*tree)->key_bytes_max() || value_bytes > (*tree)->value_bytes_max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has keys of ", lines.key_bytes, " and line numbers of ", value_bytes,
                     " bytes, tree '", settings.tree, "' takes ", (*tree)->key_bytes_max(), " and ",
                     (*tree)->value_bytes_max()));
  }
  return tree;
}

// Shows on a terminal how far a load has come, twice a second.
class ProgressLine {
 public:
  ProgressLine(const std::atomic<uint64_t>* done, uint64_t total)
      : start_(std::chrono::steady_clock::now()), shown_(isatty(STDERR_FILENO) != 0) {
    if (shown_) thread_ = std::thread([this, done, total] { Run(*done, total); });
  }
  ~ProgressLine() {
    if (!shown_) return;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_one();
    thread_.join();
    fprintf(stderr, "\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  void Run(const std::atomic<uint64_t>& done, uint64_t total) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stopped_; })) {
      const uint64_t count = done.load(std::memory_order_relaxed);
      fprintf(stderr, "\r\033[Kloaded %llu of %llu keys, %.0f a second",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(total),
              static_cast<double>(count) / Seconds());
    }
  }

  const std::chrono::steady_clock::time_point start_;
  const bool shown_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;
};

absl::Status PutRange(Session* session, const Tree& tree, const Line* first, const Line* last,
                      std::atomic<uint64_t>* done, std::atomic<bool>* failed) {
  std::vector<KeyValue> batch;
  while (first != last && !failed->load(std::memory_order_relaxed)) {
    batch.clear();
    for (; first != last && batch.size() < kBatch; ++first) {
      batch.push_back({std::string(first->key), std::to_string(first->number)});
    }
    for (const absl::Status& status : session->MultiPut(tree, batch)) {
      if (status.ok()) continue;
      failed->store(true, std::memory_order_relaxed);
      return status;
    }
    done->fetch_add(batch.size(), std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

// Each session puts one range of the sorted keys, so that sessions rarely meet in a leaf.
absl::Status PutAll(const Settings& settings, Client* client, const Tree& tree,
                    const std::vector<Line>& lines, std::atomic<uint64_t>* done) {
  const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
  const size_t sessions =
      settings.sessions > 0 ? static_cast<size_t>(settings.sessions) : std::min(cpus, 8u);
  std::atomic<bool> failed{false};
  std::vector<absl::Status> statuses(sessions);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sessions; ++i) {
    const Line* const first = lines.data() + lines.size() * i / sessions;
    const Line* const last = lines.data() + lines.size() * (i + 1) / sessions;
    threads.emplace_back([&, i, first, last] {
      const auto session = client->NewSession();
      statuses[i] = session.ok() ? PutRange(session->get(), tree, first, last, done, &failed)
                                 : session.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status BulkLoad(Client* client, const Tree& tree, const std::vector<Line>& lines,
                      std::atomic<uint64_t>* done) {
  const auto session = client->NewSession();
  if (!session.ok()) return session.status();
  size_t next = 0;
  return (*session)->BulkLoad(tree, [&](KeyValue* entry) {
    if (next == lines.size()) return false;
    entry->key = lines[next].key;
    entry->value = std::to_string(lines[next].number);
    done->store(++next, std::memory_order_relaxed);
    return true;
  });
}

// Both ways leave the same tree when they are tried twice.
absl::Status FillTree(const Settings& settings, const Lines& lines, Client* client,
                      std::atomic<uint64_t>* done) {
  const auto tree = OpenOrCreate(settings, lines, client);
  if (!tree.ok()) return tree.status();
  done->store(0);
  if (settings.bulk) {
    const absl::Status status = BulkLoad(client, **tree, lines.sorted, done);
    if (status.ok()) return client->TreeStatus(**tree);
    if (!absl::IsFailedPrecondition(status)) return status;
    done->store(0);  // not empty
  }
  const absl::Status status = PutAll(settings, client, **tree, lines.sorted, done);
  // What was put may have gone since, with a memory server.
  return status.ok() ? client->TreeStatus(**tree) : status;
}

}  // namespace

absl::Status Load(const Settings& settings, const Arguments& arguments) {
  const auto text = ReadInput(arguments[0]);
  if (!text.ok()) return text.status();
  const auto lines = SplitLines(*text, arguments[0]);
  if (!lines.ok()) return lines.status();
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();

  std::atomic<uint64_t> done{0};
  const ProgressLine progress(&done, lines->sorted.size());
  absl::Status status = FillTree(settings, *lines, client->get(), &done);
  if (absl::IsResourceExhausted(status)) {
    std::this_thread::sleep_for(kRestOfDroppedTrees);
    status = FillTree(settings, *lines, client->get(), &done);
  }
  if (!status.ok()) return status;
  const auto milliseconds = static_cast<int64_t>(progress.Seconds() * 1000);
  const std::string left_out =
      lines->empty == 0 ? "" : absl::StrCat("; ", lines->empty, " empty lines left out");
  return Print(absl::StrCat("loaded ", lines->sorted.size(), " keys from ", lines->total,
                            " lines into '", settings.tree, "' in ", milliseconds, " ms", left_out,
                            "\n"));
}

}  // namespace pando::tool
