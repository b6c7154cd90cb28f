#include "bench/sim/walk.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/fabric/recoverable.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

constexpr int64_t kBrokenPauseNs = 50 * kMicrosecondNs;
constexpr int kTriesMax = 4;

// The least string above.
std::string Behind(std::string_view key) { return std::string(key) + '\0'; }

class Walker {
 public:
  Walker(Session* session, const Tree& tree, const CursorOptions& options, int64_t pause_ns)
      : session_(*session), cursor_(session->NewCursor(tree, options)), pause_ns_(pause_ns) {}

  bool Seek(const std::string& key) { return GoOn(cursor_->Seek(key), /*up=*/true); }
  bool Next() { return GoOn(cursor_->Next(), true); }
  bool Prev() { return GoOn(cursor_->Prev(), false); }
  // Adds the entry, if there is one. False: there is none, or these are enough.
  bool Take(size_t limit, Rows* rows) {
    if (!cursor_->Valid()) return false;
    rows->emplace_back(cursor_->key(), cursor_->value());
    Sleep(pause_ns_);
    return rows->size() < limit;
  }
  const absl::Status& status() const { return cursor_->status(); }

 private:
  bool GoOn(bool moved, bool up) {
    for (int tries = 1; !moved && IsRecoverable(status()) && tries < kTriesMax; ++tries) {
      Sleep(kBrokenPauseNs);
      moved = up ? cursor_->Next() : cursor_->Prev();
    }
    return moved;
  }
  void Sleep(int64_t ns) {
    if (ns > 0) session_.SleepUntil(ImplOf(session_).context().NowNs() + ns);
  }

  Session& session_;
  const std::unique_ptr<Cursor> cursor_;
  const int64_t pause_ns_;
};

// What was seen of [from, to): all of it, or as far as `rows` go if these were enough.
void Record(Rows rows, bool down, bool enough, std::string from, std::optional<std::string> to,
            history::Operation* scan) {
  scan->to = std::move(to);
  scan->limit = rows.size() + (enough && !down ? 0 : 1);
  scan->key = enough && down ? rows.back().first : std::move(from);
  if (down) std::reverse(rows.begin(), rows.end());
  scan->rows = std::move(rows);
}

}  // namespace

Walk RandomWalk(const std::string& any_key, Random* random) {
  Walk walk;
  walk.down = random->Chance(0.6);
  walk.seeks = random->Chance(0.3);
  walk.turns = random->Chance(0.3);
  if (random->Chance(0.3)) walk.until = any_key;
  walk.read_ahead = static_cast<int>(random->Uniform(9));
  if (random->Chance(0.3)) walk.pause_ns = 1 + static_cast<int64_t>(random->Uniform(3'000));
  return walk;
}

absl::Status PerformWalk(Session& session, const Tree& tree, const Walk& walk,
                         history::Operation* scan, std::optional<history::Operation>* back) {
  const std::string start = scan->key;
  const size_t limit = scan->limit;
  // [from, to): what is walked through first.
  std::string from = walk.down ? walk.until.value_or("") : start;
  std::optional<std::string> to = walk.until;
  if (walk.down) to = start.empty() ? std::nullopt : std::optional<std::string>(Behind(start));
  CursorOptions options{
      .from = from, .to = to, .reverse = walk.down, .limit = limit, .read_ahead = walk.read_ahead};
  const bool seeks = walk.seeks && !start.empty();
  if (seeks && walk.down) options.to.reset();
  if (seeks && !walk.down) options.from.clear();
  Walker walker(&session, tree, options, walk.pause_ns);
  Rows rows;
  seeks ? walker.Seek(start) : walker.Next();
  while (walker.Take(limit, &rows)) walker.Next();
  const bool enough = rows.size() == limit;
  if (!walker.status().ok()) return walker.status();
  if (walk.turns) {
    // From behind the last entry, or from the range's end.
    if (enough) (void)walker.Next();
    Rows rows_back;
    walker.Prev();
    while (walker.Take(limit, &rows_back)) walker.Prev();
    if (!walker.status().ok()) return walker.status();
    const std::string low = walk.down && enough ? rows.back().first
                            : walk.down         ? from
                                                : options.from;
    const std::optional<std::string> high = !walk.down && enough ? Behind(rows.back().first)
                                            : !walk.down         ? to
                                                                 : options.to;
    const bool enough_back = rows_back.size() == limit;
    *back = *scan;
    Record(std::move(rows_back), !walk.down, enough_back, low, high, &**back);
  }
  Record(std::move(rows), walk.down, enough, std::move(from), std::move(to), scan);
  return absl::OkStatus();
}

}  // namespace pando
