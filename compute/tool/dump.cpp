// pando dump: a tree as a stream (dump_format.h), to a file or standard output.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/base/units.h"
#include "compute/tool/commands.h"
#include "compute/tool/dump_format.h"
#include "compute/tool/dump_reader.h"
#include "compute/tool/input.h"
#include "compute/tool/progress.h"

namespace pando::tool {
namespace {

// Where a dump goes to, and how far it has come already.
struct DumpTarget {
  std::string name;
  UniqueFd file;  // none: standard output
  bool is_regular = false;
  bool complete = false;
  uint64_t bytes = 0;  // of whole blocks; 0: nothing, not even a header
  DumpTotals totals;
  std::string last_key;

  int fd() const { return file ? file.get() : STDOUT_FILENO; }
};

DumpOptions OptionsOf(const Tree& tree) {
  const bool has_longer = tree.value_bytes_max() > tree.inline_value_bytes_max();
  return {.key_bytes_max = tree.key_bytes_max(),
          .value_bytes_max = tree.value_bytes_max(),
          .node_bytes = tree.node_bytes(),
          .owned = tree.mode() == TreeOptions::Mode::kOwned,
          .narrow_reads = tree.narrow_reads(),
          .delete_persistence_ms = tree.delete_persistence_ms(),
          .inline_value_bytes_max = has_longer ? tree.inline_value_bytes_max() : 0};
}

// Two dumps into one file would each write where the other does: one of them at a time, until its
// process ends.
absl::Status LockTarget(const DumpTarget& target) {
  // Not every file system has locks.
  if (flock(target.fd(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("another dump still writes ", target.name,
                                                    ": wait for its end, or give another file"));
}

absl::StatusOr<DumpTarget> OpenNew(const std::string& path) {
  DumpTarget target{.name = path == "-" ? "standard output" : path};
  if (path == "-") {
    if (isatty(STDOUT_FILENO) == 0) return target;
    return absl::InvalidArgumentError("a dump is not text for a terminal: give a file, or a pipe");
  }
  struct stat status = {};
  // What is not a regular file is for whoever made it, as a pipe: nothing in it is overwritten.
  const bool other = stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  const int flags = other ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL;
  target.file = UniqueFd(open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (target.file) {
    target.is_regular = !other;
    if (!other) PANDO_RETURN_IF_ERROR(LockTarget(target));
    return target;
  }
  if (errno == EEXIST) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is there already: --resume goes on with a dump that ended half way; else remove it"));
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
}

// Reads what is there, and cuts off what is not whole.
absl::Status FindEnd(const DumpOptions& options, DumpTarget* target) {
  const std::string header = EncodeDumpHeader(options);
  DumpReader reader(SourceOfFile(target->fd(), target->name));
  const auto there = reader.ReadHeader();
  absl::Status status = there.status();
  if (there.ok() && !(*there == options)) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is the dump of a tree with other options: ", DumpOptionsText(*there)));
  }
  std::vector<DumpRecord> records;
  while (status.ok()) {
    const auto more = reader.NextBlock(&records);
    status = more.status();
    target->complete = more.ok() && !*more;
    if (target->complete) break;
  }
  if (!status.ok() && !IsDumpTruncated(status)) return status;
  target->bytes = reader.offset();
  target->totals = reader.totals();
  target->last_key = reader.last_key();
  if (target->complete) return absl::OkStatus();
  const auto end = static_cast<off_t>(target->bytes);
  if (ftruncate(target->fd(), end) == 0 && lseek(target->fd(), end, SEEK_SET) == end) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("cannot cut it: ", strerror(errno)));
}

absl::StatusOr<DumpTarget> OpenToResume(const std::string& path, const DumpOptions& options) {
  if (path == "-") return absl::InvalidArgumentError("--resume needs a file");
  DumpTarget target{.name = path, .file = UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC))};
  if (!target.file && errno == ENOENT) return OpenNew(path);
  struct stat status = {};
  if (!target.file || fstat(target.fd(), &status) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume needs a file, and ", path, " is none"));
  }
  target.is_regular = true;
  PANDO_RETURN_IF_ERROR(LockTarget(target));
  const absl::Status found = FindEnd(options, &target);
  if (!found.ok()) return Annotate(found, path);
  return target;
}

absl::Status WriteEntries(const OpenedTree& opened, DumpWriter* writer, const DumpTarget& target,
                          Progress* progress) {
  const CursorOptions range{
      .from = target.last_key, .from_exclusive = true, .read_ahead = LeavesAtOnce(*opened.tree)};
  const auto cursor = opened.session->NewCursor(*opened.tree, range);
  while (cursor->Next()) {
    PANDO_RETURN_IF_ERROR(writer->Add(cursor->key(), cursor->value()));
    progress->Add(1, 1);
  }
  PANDO_RETURN_IF_ERROR(cursor->status());
  // The end is written only if nothing was lost on the way.
  PANDO_RETURN_IF_ERROR(opened.client->TreeStatus(*opened.tree));
  return writer->Finish();
}

// To whom the dump itself does not go.
absl::Status Tell(const DumpTarget& target, const std::string& text) {
  if (target.file) return Print(text);
  fputs(text.c_str(), stderr);
  return absl::OkStatus();
}

}  // namespace

absl::Status Dump(const Settings& settings, const Arguments& arguments) {
  auto opened = Open(settings);
  if (!opened.ok()) return opened.status();
  const DumpOptions options = OptionsOf(*opened->tree);
  auto target = settings.resume ? OpenToResume(arguments[0], options) : OpenNew(arguments[0]);
  if (!target.ok()) return target.status();
  if (target->complete) {
    return Print(absl::StrCat(target->name, " is whole: ", target->totals.records, " keys\n"));
  }
  const auto size = opened->session->EstimateSize(*opened->tree);
  Throttle throttle(settings.rate);
  uint64_t bytes = target->bytes;
  DumpWriter writer([&](std::string_view block) {
    throttle.Spend(block.size());
    bytes += block.size();
    return WriteFully(target->fd(), block, target->name);
  });
  absl::Status status;
  {
    Progress progress("dumped", size.ok() ? size->keys : 0, settings.progress);
    progress.Add(target->totals.records, target->totals.records);
    if (target->bytes == 0) {
      status = writer.Begin(options);
    } else {
      writer.GoOnAfter(options, target->totals);
    }
    if (status.ok()) status = WriteEntries(*opened, &writer, *target, &progress);
  }
  if (status.ok() && target->file && fsync(target->fd()) != 0 && errno != EINVAL &&
      errno != EROFS) {
    status = absl::DataLossError(absl::StrCat("writing ", target->name, ": ", strerror(errno)));
  }
  if (!status.ok()) {
    const char* const how = target->is_regular ? "; --resume goes on after them"
                                               : "; begin again, as --resume needs a file";
    return Annotate(status, absl::StrCat(writer.totals().records, " keys are dumped", how));
  }
  const std::string before =
      target->bytes == 0 ? "" : absl::StrCat(" (", target->totals.records, " were there)");
  return Tell(*target, absl::StrCat("dumped ", writer.records(), " keys", before, " of '",
                                    settings.tree, "' in ", FormatBytes(bytes), "\n"));
}

}  // namespace pando::tool
