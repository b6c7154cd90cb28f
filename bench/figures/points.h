// The numbers of a figure, beside those that were published, and the files they are written to.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::bench {

struct Point {
  std::string series;
  nlohmann::json x;  // a number or a text
  std::string metric;
  double simulated = 0;  // NaN: published only
  std::optional<double> published;
  std::string source;  // of what was published

  // Simulated over published.
  std::optional<double> ratio() const;
  // Further off than a factor of 1.5: to be explained.
  bool far_off() const;
};

// A published value (published.json), or a text for points that are far off (explanations.json).
struct Note {
  std::string figure, series, metric;  // "" in an explanation: any
  nlohmann::json x;                    // null in an explanation: any
  double value = 0;
  std::string text;  // where it was published; the explanation

  bool Matches(std::string_view of_figure, const Point& point) const;
};

// A file is a list of {"figure", "series", "x", "metric", "value", "source"}, or of the same with
// "text" instead of the last two. NotFound, InvalidArgument (names the entry).
absl::StatusOr<std::vector<Note>> LoadPublished(const std::filesystem::path& file);
absl::StatusOr<std::vector<Note>> LoadExplanations(const std::filesystem::path& file);

void AttachPublished(std::string_view figure, const std::vector<Note>& published,
                     std::vector<Point>* points);
// The first explanation that fits; "" if there is none.
std::string ExplanationOf(std::string_view figure, const Point& point,
                          const std::vector<Note>& explanations);

// A list of {"series", "x", "metric", "published", "simulated", "ratio"}; null where nothing was
// published, or simulated.
nlohmann::json PointsToJson(const std::vector<Point>& points);
// The same, without `source`. DataLoss.
absl::StatusOr<std::vector<Point>> PointsFromJson(const nlohmann::json& json);
std::string PointsToCsv(const std::vector<Point>& points);

// "12.3": four significant digits.
std::string FormatNumber(double value);
std::string FormatX(const nlohmann::json& x);

// PermissionDenied or Unavailable: cannot be written.
absl::Status WriteFile(const std::filesystem::path& file, std::string_view text);
absl::StatusOr<nlohmann::json> ReadJson(const std::filesystem::path& file);

}  // namespace pando::bench
