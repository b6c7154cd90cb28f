#include "bench/figures/runner.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/figures/lock_run.h"
#include "bench/figures/tree_run.h"
#include "bench/host/data_files.h"
#include "bench/host/fork_pool.h"
#include "bench/host/host_info.h"
#include "bench/host/process.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

constexpr int kPlotMs = 120'000;

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(RealClock().NowNs() - start_ns) / kSecondNs;
}

class Runner {
 public:
  Runner(const std::vector<Figure>& figures, const RunnerOptions& options)
      : figures_(figures), options_(options) {
    for (const Figure& figure : figures) results_.emplace_back(figure.cases.size());
  }

  absl::Status Run();

 private:
  // A case by figure and place.
  struct Place {
    size_t figure, index;
  };

  // The next group: all cases that start from the same tree as the first that has not run.
  std::vector<Place> NextGroup() const;
  absl::Status RunGroup(const std::vector<Place>& group);
  absl::StatusOr<nlohmann::json> RunOne(const Place& place, Snapshot* snapshot) const;
  void Report(const Place& place, const CaseResult& result);
  absl::Status WriteComplete();
  // Internal: operations of a case have failed.
  absl::Status CheckForErrors() const;
  absl::Status Write(const Figure& figure, const std::vector<CaseResult>& results);
  bool Plot(const FigureRun& run) const;
  absl::Status WritePage() const;

  bool IsReal() const { return !options_.real.name.empty(); }
  const FigureCase& At(const Place& place) const {
    return figures_[place.figure].cases[place.index];
  }
  std::string NameOf(const Place& place) const {
    return absl::StrCat(figures_[place.figure].name, ": ", At(place).series, ": ",
                        FormatX(At(place).x));
  }

  const std::vector<Figure>& figures_;
  const RunnerOptions& options_;
  std::vector<std::vector<std::optional<CaseResult>>> results_;  // by figure and case
  std::vector<bool> written_;
  std::filesystem::path data_;  // of published.json, explanations.json, plot.py
  std::vector<Note> published_;
  size_t finished_ = 0;
};

absl::Status Runner::Run() {
  PANDO_ASSIGN_OR_RETURN(const std::filesystem::path published,
                         FindDataFile("data file", "figures", "published"));
  data_ = published.parent_path();
  PANDO_ASSIGN_OR_RETURN(published_, LoadPublished(published));
  written_.resize(figures_.size());
  while (true) {
    const std::vector<Place> group = NextGroup();
    if (group.empty()) break;
    PANDO_RETURN_IF_ERROR(RunGroup(group));
    PANDO_RETURN_IF_ERROR(WriteComplete());
  }
  return CheckForErrors();
}

absl::Status Runner::CheckForErrors() const {
  size_t cases = 0;
  std::string first;
  for (size_t f = 0; f < figures_.size(); ++f) {
    for (size_t i = 0; i < figures_[f].cases.size(); ++i) {
      if (results_[f][i]->errors == 0) continue;
      if (++cases == 1) first = absl::StrCat(NameOf({f, i}), ": ", results_[f][i]->first_error);
    }
  }
  if (cases == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("operations failed in ", cases,
                                          " cases, which the figures say in their remarks; the "
                                          "first: ",
                                          first));
}

std::vector<Runner::Place> Runner::NextGroup() const {
  std::vector<Place> group;
  for (size_t f = 0; f < figures_.size(); ++f) {
    for (size_t i = 0; i < figures_[f].cases.size(); ++i) {
      if (results_[f][i].has_value()) continue;
      if (group.empty() || At({f, i}).snapshot == At(group.front()).snapshot)
        group.push_back({f, i});
    }
  }
  return group;
}

absl::Status Runner::RunGroup(const std::vector<Place>& group) {
  const SnapshotOptions& start = At(group.front()).snapshot;
  std::unique_ptr<Snapshot> snapshot;
  if (start.records > 0 && !IsReal()) {
    options_.progress(absl::StrFormat("loading %d records of %d/%d on %d memory servers",
                                      start.records, start.key_bytes, start.value_bytes,
                                      start.memory_servers));
    const int64_t start_ns = RealClock().NowNs();
    PANDO_ASSIGN_OR_RETURN(snapshot, Snapshot::Load(start));
    options_.progress(absl::StrFormat("loaded in %.1f s: %d nodes of level 1, %.1f MB in a cache",
                                      SecondsSince(start_ns), snapshot->parents().size(),
                                      static_cast<double>(snapshot->parent_bytes()) / 1e6));
  }
  std::vector<ForkJob> jobs;
  for (const Place& place : group) {
    jobs.push_back(
        {NameOf(place), [this, place, &snapshot] { return RunOne(place, snapshot.get()); }});
  }
  absl::Status wrong;
  const auto ended = [&](size_t job, const nlohmann::json& answer) {
    absl::StatusOr<CaseResult> result = CaseResultFromJson(answer);
    if (!result.ok()) {
      wrong.Update(Annotate(result.status(), jobs[job].name));
      return;
    }
    Report(group[job], *result);
    results_[group[job].figure][group[job].index] = *std::move(result);
  };
  PANDO_RETURN_IF_ERROR(RunForked(jobs, IsReal() ? 1 : options_.jobs, ended).status());
  return wrong;
}

absl::StatusOr<nlohmann::json> Runner::RunOne(const Place& place, Snapshot* snapshot) const {
  const int64_t start_ns = RealClock().NowNs();
  const FigureCase& one = At(place);
  absl::StatusOr<CaseResult> result;
  if (IsReal()) {
    result = RunRealCase(std::get<TreeCase>(one.run), one.snapshot, options_.real);
  } else if (const auto* const locks = std::get_if<LockCase>(&one.run)) {
    result = RunLockCase(*locks, options_.grid.nic);
  } else {
    result = RunTreeCase(std::get<TreeCase>(one.run), snapshot);
  }
  PANDO_RETURN_IF_ERROR(result.status());
  result->wall_seconds = SecondsSince(start_ns);
  return CaseResultToJson(*result);
}

void Runner::Report(const Place& place, const CaseResult& result) {
  size_t all = 0;
  for (const Figure& figure : figures_) all += figure.cases.size();
  const std::string speed =
      IsReal() ? ""
               : absl::StrFormat(
                     "; %.2f verbs a doorbell; %.1f s of CPU at %.2f M verbs/s",
                     static_cast<double>(result.verbs) /
                         static_cast<double>(std::max<uint64_t>(result.doorbells, 1)),
                     result.cpu_seconds,
                     static_cast<double>(result.verbs) / 1e6 / std::max(result.cpu_seconds, 1e-6));
  options_.progress(
      absl::StrFormat("[%d/%d] %s: %.3f Mops, p50 %.1f us, p99 %.1f us (%.1f s%s)%s", ++finished_,
                      all, NameOf(place), result.mops(), result.PercentileUs(50),
                      result.PercentileUs(99), result.wall_seconds, speed,
                      result.errors > 0  ? absl::StrCat(" ERRORS: ", result.first_error)
                      : result.cut_short ? std::string(" (cut short)")
                                         : std::string()));
}

absl::Status Runner::WriteComplete() {
  bool any = false;
  for (size_t f = 0; f < figures_.size(); ++f) {
    const auto& results = results_[f];
    const bool complete = std::all_of(results.begin(), results.end(),
                                      [](const auto& result) { return result.has_value(); });
    if (!complete || written_[f]) continue;
    std::vector<CaseResult> all;
    for (const auto& result : results) all.push_back(*result);
    PANDO_RETURN_IF_ERROR(Write(figures_[f], all));
    written_[f] = any = true;
  }
  return any ? WritePage() : absl::OkStatus();
}

absl::Status Runner::Write(const Figure& figure, const std::vector<CaseResult>& results) {
  const Grid& grid = figure.sized.has_value() ? *figure.sized : options_.grid;
  FigureRun run = {.figure = figure.name,
                   .title = figure.title,
                   .x_name = figure.x_name,
                   .fabric = IsReal() ? "measured on " + options_.real.name : FigureRun::kSimulated,
                   .profile = options_.profile,
                   .commit = GetHostInfo().commit,
                   .records = grid.records,
                   .seed = grid.seed,
                   .memory_servers = grid.memory_servers,
                   .compute_servers = grid.compute_servers,
                   .threads = grid.threads,
                   .quick = grid.quick};
  // Some figures are smaller than the grid.
  uint64_t records = 0;
  int compute_servers = 0;
  for (const FigureCase& one : figure.cases) {
    const auto* const tree = std::get_if<TreeCase>(&one.run);
    if (tree == nullptr) continue;
    records = std::max(records, one.snapshot.records);
    compute_servers = std::max(compute_servers, tree->compute_servers);
  }
  if (records > 0) run.records = std::min(run.records, records);
  if (compute_servers > 0) run.compute_servers = std::min(run.compute_servers, compute_servers);
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string name =
        absl::StrCat(figure.cases[i].series, ", ", FormatX(figure.cases[i].x), ": ");
    if (results[i].cut_short) {
      run.remarks.push_back(absl::StrCat(name, "ended early, after ", results[i].operations,
                                         " operations in ", results[i].span_ns / kMicrosecondNs,
                                         " us of virtual time"));
    }
    if (results[i].errors > 0) {
      run.remarks.push_back(absl::StrCat(
          name, results[i].errors, " operations failed, the first with: ", results[i].first_error));
    }
  }
  std::vector<Point> points = PointsOf(figure, results);
  // What was published was measured on other hardware than this.
  if (!IsReal()) AttachPublished(figure.name, published_, &points);
  const auto file = [&](const char* ending) { return options_.out / (figure.name + ending); };
  PANDO_RETURN_IF_ERROR(WriteFile(file(".csv"), PointsToCsv(points)));
  PANDO_RETURN_IF_ERROR(WriteFile(file(".json"), PointsToJson(points).dump(1) + "\n"));
  PANDO_RETURN_IF_ERROR(WriteFile(file(".run.json"), FigureRunToJson(run).dump(1) + "\n"));
  std::error_code error;
  std::filesystem::remove(file(".png"), error);  // of an earlier run
  const bool plotted = options_.pictures && Plot(run);
  options_.progress(
      absl::StrCat("wrote ", file(".csv").string(), " and .json", plotted ? ", .png" : ""));
  return absl::OkStatus();
}

bool Runner::Plot(const FigureRun& run) const {
  // Debian's interpreter: it is the one that has Debian's matplotlib.
  absl::StatusOr<Process> plot =
      Process::Spawn({.arguments = {"/usr/bin/python3", (data_ / "plot.py").string(),
                                    options_.out.string(), run.figure, run.Label()}});
  if (!plot.ok()) {
    options_.progress(absl::StrCat("warning: no picture: ", plot.status().ToString()));
    return false;
  }
  if (plot->WaitFor(kPlotMs) && plot->ended_well()) return true;
  options_.progress(
      absl::StrCat("warning: no picture of ", run.figure, " (is python3-matplotlib installed?)"));
  return false;
}

absl::Status Runner::WritePage() const {
  PANDO_ASSIGN_OR_RETURN(const std::vector<Note> explanations,
                         LoadExplanations(data_ / "explanations.json"));
  std::vector<FigureOnPage> on_page;
  for (const std::string& name : FigureNames()) {
    const auto file = [&](const char* ending) { return options_.out / (name + ending); };
    const absl::StatusOr<nlohmann::json> run_json = ReadJson(file(".run.json"));
    const absl::StatusOr<nlohmann::json> points_json = ReadJson(file(".json"));
    if (!run_json.ok() || !points_json.ok()) continue;
    PANDO_ASSIGN_OR_RETURN(FigureRun run, FigureRunFromJson(*run_json));
    PANDO_ASSIGN_OR_RETURN(std::vector<Point> points, PointsFromJson(*points_json));
    std::error_code error;
    const bool has_picture = std::filesystem::exists(file(".png"), error);
    on_page.push_back({std::move(run), std::move(points), has_picture});
  }
  return WriteFile(options_.out / "index.md", MakePage(on_page, published_, explanations));
}

}  // namespace

absl::Status MakeFigures(const std::vector<Figure>& figures, const RunnerOptions& options) {
  return Runner(figures, options).Run();
}

absl::Status CheckWritable(const std::filesystem::path& out) {
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot create ", out.string(), ": ", error.message()));
  }
  if (access(out.c_str(), W_OK | X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to ", out.string()));
  }
  return absl::OkStatus();
}

}  // namespace pando::bench
