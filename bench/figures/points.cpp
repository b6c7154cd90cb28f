#include "bench/figures/points.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

constexpr double kFarOff = 1.5;

// The files hold no more digits than mean something, and all machines the same.
double Rounded(double value) {
  const std::string text = absl::StrFormat("%.6g", value);
  return std::stod(text);
}

Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(Rounded(*value)) : Json();
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::optional<double> SimulatedOf(const Point& point) {
  return std::isnan(point.simulated) ? std::nullopt : std::optional(point.simulated);
}

absl::StatusOr<std::vector<Note>> LoadNotes(const std::filesystem::path& file,
                                            const char* text_name, bool any_matches) {
  PANDO_ASSIGN_OR_RETURN(const Json json, ReadJson(file));
  if (!json.is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(file.string(), ": not a list"));
  }
  std::vector<Note> notes;
  for (const Json& entry : json) {
    try {
      Note& note = notes.emplace_back();
      entry.at("figure").get_to(note.figure);
      note.series = any_matches ? entry.value("series", "") : entry.at("series").get<std::string>();
      note.metric = any_matches ? entry.value("metric", "") : entry.at("metric").get<std::string>();
      note.x = any_matches ? entry.value("x", Json()) : entry.at("x");
      if (!any_matches) entry.at("value").get_to(note.value);
      entry.at(text_name).get_to(note.text);
    } catch (const Json::exception& error) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.string(), ": ", entry.dump(), ": ", error.what()));
    }
  }
  return notes;
}

}  // namespace

std::optional<double> Point::ratio() const {
  if (!published.has_value() || *published == 0 || std::isnan(simulated)) return std::nullopt;
  return simulated / *published;
}

bool Point::far_off() const {
  const std::optional<double> off = ratio();
  return off.has_value() && (*off > kFarOff || *off < 1 / kFarOff);
}

bool Note::Matches(std::string_view of_figure, const Point& point) const {
  return figure == of_figure && (series.empty() || series == point.series) &&
         (metric.empty() || metric == point.metric) && (x.is_null() || x == point.x);
}

absl::StatusOr<std::vector<Note>> LoadPublished(const std::filesystem::path& file) {
  return LoadNotes(file, "source", /*any_matches=*/false);
}

absl::StatusOr<std::vector<Note>> LoadExplanations(const std::filesystem::path& file) {
  return LoadNotes(file, "text", /*any_matches=*/true);
}

void AttachPublished(std::string_view figure, const std::vector<Note>& published,
                     std::vector<Point>* points) {
  for (Point& point : *points) {
    for (const Note& note : published) {
      if (!note.Matches(figure, point)) continue;
      point.published = note.value;
      point.source = note.text;
    }
  }
}

std::string ExplanationOf(std::string_view figure, const Point& point,
                          const std::vector<Note>& explanations) {
  for (const Note& note : explanations) {
    if (note.Matches(figure, point)) return note.text;
  }
  return "";
}

Json PointsToJson(const std::vector<Point>& points) {
  Json list = Json::array();
  for (const Point& point : points) {
    list.push_back({{"series", point.series},
                    {"x", point.x},
                    {"metric", point.metric},
                    {"published", OrNull(point.published)},
                    {"simulated", OrNull(SimulatedOf(point))},
                    {"ratio", OrNull(point.ratio())}});
  }
  return list;
}

absl::StatusOr<std::vector<Point>> PointsFromJson(const Json& json) {
  std::vector<Point> points;
  try {
    for (const Json& entry : json) {
      Point& point = points.emplace_back();
      entry.at("series").get_to(point.series);
      point.x = entry.at("x");
      entry.at("metric").get_to(point.metric);
      const Json& simulated = entry.at("simulated");
      point.simulated = simulated.is_null() ? std::nan("") : simulated.get<double>();
      if (!entry.at("published").is_null()) point.published = entry.at("published").get<double>();
    }
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("no list of points: ", error.what()));
  }
  return points;
}

std::string PointsToCsv(const std::vector<Point>& points) {
  std::string csv = "series,x,metric,published,simulated,ratio\n";
  const auto number = [](const std::optional<double>& value) {
    return value.has_value() ? absl::StrFormat("%.6g", *value) : std::string();
  };
  for (const Point& point : points) {
    absl::StrAppend(&csv, CsvField(point.series), ",", CsvField(FormatX(point.x)), ",",
                    CsvField(point.metric), ",", number(point.published), ",",
                    number(SimulatedOf(point)), ",", number(point.ratio()), "\n");
  }
  return csv;
}

std::string FormatNumber(double value) {
  return std::isnan(value) ? "-" : absl::StrFormat("%.4g", value);
}

std::string FormatX(const Json& x) { return x.is_string() ? x.get<std::string>() : x.dump(); }

absl::Status WriteFile(const std::filesystem::path& file, std::string_view text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (out) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", file.string()));
}

absl::StatusOr<Json> ReadJson(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", file.string()));
  Json json = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(file.string(), " is no JSON"));
  }
  return json;
}

}  // namespace pando::bench
