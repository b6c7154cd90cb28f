// pando restore: a dump (dump_format.h) back into a tree.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "compute/tool/byte_text.h"
#include "compute/tool/commands.h"
#include "compute/tool/dump_reader.h"
#include "compute/tool/input.h"
#include "compute/tool/progress.h"

namespace pando::tool {
namespace {

constexpr size_t kEntriesAtOnce = 1024, kValueBytesAtOnce = 4 << 20;

struct DumpInput {
  std::string name;
  UniqueFd file;       // none: standard input
  uint64_t bytes = 0;  // 0: nobody knows, and it can be read only once

  int fd() const { return file ? file.get() : STDIN_FILENO; }
  bool Rewind() const { return bytes > 0 && lseek(fd(), 0, SEEK_SET) == 0; }
};

absl::StatusOr<DumpInput> OpenInput(const std::string& path) {
  DumpInput input{.name = NameOfInput(path)};
  if (path == "-") return input;
  input.file = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!input.file || fstat(input.fd(), &status) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  if (S_ISREG(status.st_mode)) input.bytes = static_cast<uint64_t>(status.st_size);
  return input;
}

// The entries of a dump one by one, from a key on.
class EntryStream {
 public:
  EntryStream(const DumpInput& input, const Settings& settings, Progress* progress)
      : name_(input.name),
        reader_(SourceOfFile(input.fd(), input.name)),
        from_(settings.from),
        throttle_(settings.rate),
        progress_(progress) {}

  absl::StatusOr<DumpOptions> ReadHeader() {
    auto options = reader_.ReadHeader();
    if (!options.ok()) return Annotate(options.status(), name_);
    progress_->Add(0, reader_.offset());
    return options;
  }
  // False: that were all.
  absl::StatusOr<bool> Next(KeyValue* entry) {
    while (true) {
      for (; next_ < records_.size(); ++next_) {
        if (records_[next_].key < from_) continue;
        entry->key = records_[next_].key;
        entry->value = records_[next_].value;
        ++next_;
        given_ = true;
        return true;
      }
      next_ = 0;
      const uint64_t before = reader_.offset();
      const auto more = reader_.NextBlock(&records_);
      if (!more.ok()) return Annotate(more.status(), name_);
      throttle_.Spend(reader_.offset() - before);
      progress_->Add(0, reader_.offset() - before);
      if (!*more) return false;
    }
  }
  bool given() const { return given_; }  // any entry

 private:
  const std::string name_;
  DumpReader reader_;
  const std::string from_;
  Throttle throttle_;
  Progress* const progress_;
  std::vector<DumpRecord> records_;
  size_t next_ = 0;
  bool given_ = false;
};

struct RestoreTarget {
  std::unique_ptr<Tree> tree;
  bool made = false, empty = false;
};

absl::StatusOr<RestoreTarget> OpenTarget(const Settings& settings, const DumpOptions& options,
                                         Client* client, Session* session) {
  RestoreTarget target;
  auto tree = client->OpenTree(settings.tree);
  if (absl::IsNotFound(tree.status())) {
    target.made = true;
    tree = client->CreateTree(
        settings.tree,
        {.key_bytes_max = options.key_bytes_max,
         .value_bytes_max = options.value_bytes_max,
         .node_bytes = options.node_bytes,
         .mode = options.owned ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared,
         .delete_persistence_ms = options.delete_persistence_ms,
         .narrow_reads = options.narrow_reads,
         .inline_value_bytes_max = options.inline_value_bytes_max});
  }
  if (!tree.ok()) return tree.status();
  target.tree = *std::move(tree);
  if (target.tree->key_bytes_max() < options.key_bytes_max ||
      target.tree->value_bytes_max() < options.value_bytes_max) {
    return absl::FailedPreconditionError(
        absl::StrCat("tree '", settings.tree, "' is there and takes keys and values of ",
                     target.tree->key_bytes_max(), " and ", target.tree->value_bytes_max(),
                     " bytes, the dump's have up to ", options.key_bytes_max, " and ",
                     options.value_bytes_max, ": give another --tree"));
  }
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(session->Scan(*target.tree, "", 1, &rows));
  target.empty = rows.empty();
  return target;
}

// All or nothing. FailedPrecondition with nothing taken from the stream: the tree is not empty.
absl::Status FillAtOnce(Session* session, const Tree& tree, EntryStream* stream,
                        Progress* progress) {
  absl::Status failure;
  const absl::Status status = session->BulkLoad(tree, [&](KeyValue* entry) {
    const auto more = stream->Next(entry);
    if (!more.ok()) {
      failure = more.status();
      throw std::runtime_error("the dump");
    }
    if (*more) progress->Add(1, 0);
    return *more;
  });
  return failure.ok() ? status : failure;
}

// How to go on behind a key.
std::string GoOnText(const std::string& last_key) {
  if (last_key.empty()) return "";
  return absl::StrCat("; the same command again is right, and with --hex --from=", ToHex(last_key),
                      " it goes on after them");
}

// In the order of keys, many at a time.
absl::Status PutAllEntries(Session* session, const Tree& tree, EntryStream* stream,
                           Progress* progress) {
  std::string last_key;
  bool more = true;
  absl::Status status;
  while (more && status.ok()) {
    std::vector<KeyValue> batch;
    size_t bytes = 0;
    while (more && status.ok() && batch.size() < kEntriesAtOnce && bytes < kValueBytesAtOnce) {
      batch.emplace_back();
      const auto next = stream->Next(&batch.back());
      status = next.status();
      more = next.ok() && *next;
      if (more) bytes += batch.back().value.size();
      if (!more) batch.pop_back();
    }
    // What was read before the dump's end or damage is put.
    for (const absl::Status& put : session->MultiPut(tree, batch)) {
      if (!put.ok()) {
        return Annotate(put,
                        absl::StrCat(progress->keys(), " keys are restored", GoOnText(last_key)));
      }
    }
    progress->Add(batch.size(), 0);
    if (!batch.empty()) last_key = batch.back().key;
  }
  if (status.ok()) return status;
  return Annotate(status, absl::StrCat(progress->keys(), " keys are restored", GoOnText(last_key)));
}

struct Restored {
  absl::Status status;
  uint64_t keys = 0;
  std::string into;  // for people
};

// One attempt, from the beginning of the input.
Restored RestoreOnce(const Settings& settings, const DumpInput& input, Client* client,
                     Progress* progress) {
  Restored restored;
  EntryStream stream(input, settings, progress);
  const auto options = stream.ReadHeader();
  if (!options.ok()) return {options.status()};
  const auto session = client->NewSession();
  if (!session.ok()) return {session.status()};
  const auto target = OpenTarget(settings, *options, client, session->get());
  if (!target.ok()) return {target.status()};
  const Tree& tree = *target->tree;
  restored.into =
      absl::StrCat(target->made    ? "new tree '"
                   : target->empty ? "empty tree '"
                                   : "tree '",
                   settings.tree, target->empty ? "'" : "', in addition to what it has");
  // What is throttled takes too long for one operation.
  bool at_once = settings.bulk && target->empty && settings.rate == 0;
  if (at_once) {
    restored.status = FillAtOnce(session->get(), tree, &stream, progress);
    if (absl::IsFailedPrecondition(restored.status) && !stream.given()) at_once = false;
    if (at_once && !restored.status.ok() && !IsOutcomeUnknown(restored.status)) {
      restored.status =
          Annotate(restored.status, absl::StrCat("nothing is restored into ", restored.into));
    }
  }
  if (!at_once) restored.status = PutAllEntries(session->get(), tree, &stream, progress);
  if (restored.status.ok()) restored.status = client->TreeStatus(tree);
  restored.keys = progress->keys();
  return restored;
}

}  // namespace

absl::Status Restore(const Settings& settings, const Arguments& arguments) {
  const auto input = OpenInput(arguments[0]);
  if (!input.ok()) return input.status();
  const auto client = Connect(settings);
  if (!client.ok()) return client.status();
  Restored restored;
  {
    Progress progress("restored", input->bytes, settings.progress);
    restored = RestoreOnce(settings, *input, client->get(), &progress);
    if (absl::IsResourceExhausted(restored.status) && input->Rewind()) {
      std::this_thread::sleep_for(kRestOfDroppedTrees);
      progress.Reset();
      restored = RestoreOnce(settings, *input, client->get(), &progress);
    }
  }
  if (!restored.status.ok()) return restored.status;
  return Print(absl::StrCat("restored ", restored.keys, " keys into ", restored.into, "\n"));
}

}  // namespace pando::tool
