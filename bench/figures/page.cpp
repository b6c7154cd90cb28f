#include "bench/figures/page.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

template <typename Run, typename Visit>
void VisitRun(Run& run, const Visit& visit) {
  visit("figure", run.figure);
  visit("title", run.title);
  visit("x_name", run.x_name);
  visit("fabric", run.fabric);
  visit("profile", run.profile);
  visit("commit", run.commit);
  visit("records", run.records);
  visit("seed", run.seed);
  visit("memory_servers", run.memory_servers);
  visit("compute_servers", run.compute_servers);
  visit("threads", run.threads);
  visit("quick", run.quick);
  visit("remarks", run.remarks);
}

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

template <typename T>
void AddOnce(const T& item, std::vector<T>* list) {
  if (std::find(list->begin(), list->end(), item) == list->end()) list->push_back(item);
}

// Paper beside simulation, where the paper says something.
void AddComparisonTable(const FigureOnPage& figure, const std::vector<Note>& explanations,
                        std::string* page) {
  std::string rows, texts;
  for (const Point& point : figure.points) {
    if (!point.published.has_value()) continue;
    const std::optional<double> ratio = point.ratio();
    absl::StrAppend(&rows, "| ", Cell(point.series), " | ", Cell(FormatX(point.x)), " | ",
                    point.metric, " | ", FormatNumber(*point.published), " | ",
                    FormatNumber(point.simulated), " | ",
                    ratio.has_value() ? FormatNumber(*ratio) : std::string("-"), " | ");
    if (point.far_off()) {
      const std::string text = ExplanationOf(figure.run.figure, point, explanations);
      absl::StrAppend(&rows, text.empty() ? "**not explained yet**" : Cell(text));
    }
    absl::StrAppend(&rows, " |\n");
  }
  if (rows.empty()) {
    absl::StrAppend(page, "Nothing was published for comparison.\n\n");
    return;
  }
  absl::StrAppend(
      page, "| series | ", figure.run.x_name,
      " | metric | paper | simulated | simulated / paper | why further off than x1.5 |\n"
      "|---|---|---|---|---|---|---|\n",
      rows, "\n");
}

// A row for each series and x, a column for each metric.
void AddValuesTable(const FigureOnPage& figure, std::string* page) {
  std::vector<std::string> metrics;
  std::vector<std::pair<std::string, Json>> rows;
  for (const Point& point : figure.points) {
    AddOnce(point.metric, &metrics);
    AddOnce({point.series, point.x}, &rows);
  }
  absl::StrAppend(page, "| series | ", figure.run.x_name, " |");
  for (const std::string& metric : metrics) absl::StrAppend(page, " ", metric, " |");
  absl::StrAppend(page, "\n|---|---|");
  for (size_t i = 0; i < metrics.size(); ++i) absl::StrAppend(page, "---|");
  absl::StrAppend(page, "\n");
  for (const auto& [series, x] : rows) {
    absl::StrAppend(page, "| ", Cell(series), " | ", Cell(FormatX(x)), " |");
    for (const std::string& metric : metrics) {
      const auto at =
          std::find_if(figure.points.begin(), figure.points.end(),
                       [&, &row_series = series, &row_x = x](const Point& p) {
                         return p.series == row_series && p.x == row_x && p.metric == metric;
                       });
      absl::StrAppend(
          page, " ", at == figure.points.end() ? std::string() : FormatNumber(at->simulated), " |");
    }
    absl::StrAppend(page, "\n");
  }
  absl::StrAppend(page, "\n");
}

void AddSources(const FigureOnPage& figure, const std::vector<Note>& published, std::string* page) {
  std::vector<std::string> sources;
  for (const Note& note : published) {
    const bool used = std::any_of(figure.points.begin(), figure.points.end(), [&](const Point& p) {
      return note.Matches(figure.run.figure, p);
    });
    if (used) AddOnce(note.text, &sources);
  }
  for (const std::string& source : sources) absl::StrAppend(page, "* ", source, "\n");
  if (!sources.empty()) absl::StrAppend(page, "\n");
}

}  // namespace

std::string FigureRun::Label() const {
  return absl::StrCat(fabric, profile.empty() ? "" : absl::StrCat(", profile ", profile),
                      ", commit ", commit, ", ", records, " records, ", memory_servers,
                      " memory servers, ", compute_servers, " compute servers x ", threads,
                      " threads, seed ", seed, quick ? ", quick grid" : "");
}

Json FigureRunToJson(const FigureRun& run) {
  Json json;
  VisitRun(run, [&json](const char* name, const auto& field) { json[name] = field; });
  return json;
}

absl::StatusOr<FigureRun> FigureRunFromJson(const Json& json) {
  FigureRun run;
  try {
    VisitRun(run, [&json](const char* name, auto& field) { json.at(name).get_to(field); });
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("no description of a run: ", error.what()));
  }
  return run;
}

std::string MakePage(const std::vector<FigureOnPage>& figures, const std::vector<Note>& published,
                     const std::vector<Note>& explanations) {
  std::string page =
      "# Paper and simulation side by side\n\n"
      "**Every number here that is not under \"paper\" is simulated**, but in figures that say "
      "\"measured on\": the index code is the real one, the network a timing model, time is "
      "virtual. None was measured on RDMA hardware. \"paper\" is Sherman (SIGMOD'22); its values' "
      "sources stand below each table. The timing model was calibrated on NIC microbenchmarks "
      "alone, not on these figures.\n\n"
      "`throughput_gain`, `p50_cut`, `p99_cut`: throughput against, and latency of, the step "
      "before "
      "(or what the suffix says); above 1 is better.\n\n";
  for (const FigureOnPage& figure : figures) {
    absl::StrAppend(&page, "## ", figure.run.figure, ": ", figure.run.title, "\n\n",
                    figure.run.Label(), "\n\n");
    if (figure.has_picture) {
      absl::StrAppend(&page, "![", figure.run.figure, "](", figure.run.figure, ".png)\n\n");
    }
    for (const std::string& remark : figure.run.remarks) absl::StrAppend(&page, "* ", remark, "\n");
    if (!figure.run.remarks.empty()) absl::StrAppend(&page, "\n");
    // What was published was measured on other hardware than ours.
    if (figure.run.simulated()) {
      AddComparisonTable(figure, explanations, &page);
      AddSources(figure, published, &page);
    }
    absl::StrAppend(&page, "All values (", figure.run.fabric, ")\n\n");
    AddValuesTable(figure, &page);
  }
  return page;
}

}  // namespace pando::bench
