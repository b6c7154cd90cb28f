// A complete program: words and the languages they come from, in a tree on running memory servers.
//   pando-example REGISTRY
#include <iostream>
#include <vector>

#include "pando/client.h"
#include "pando/log.h"
#include "pando/version.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "pando-example REGISTRY\n", 2;
  pando::SetLogSink([](const pando::LogRecord& record) {
    std::cerr << pando::LogSeverityName(record.severity) << ": " << record.message << "\n";
  });
  const auto client = pando::Client::Connect({.registry = argv[1]});
  if (!client.ok()) return std::cerr << client.status() << "\n", 1;
  const auto tree =
      (*client)->CreateTree("languages", {.key_bytes_max = 32, .value_bytes_max = 16});
  if (!tree.ok()) return std::cerr << tree.status() << "\n", 1;
  const auto session = (*client)->NewSession();
  if (!session.ok()) return std::cerr << session.status() << "\n", 1;

  const std::vector<pando::KeyValue> words = {
      {"kindergarten", "German"}, {"safari", "Swahili"}, {"algebra", "Arabic"}};
  for (const absl::Status& status : (*session)->MultiPut(**tree, words)) {
    if (!status.ok()) return std::cerr << status << "\n", 1;
  }
  const auto value = (*session)->Get(**tree, "safari");
  if (!value.ok()) return std::cerr << value.status() << "\n", 1;
  std::cout << "pando " << PANDO_VERSION_STRING << ": safari is " << *value << "\n";

  std::vector<pando::KeyValue> rows;
  const absl::Status scanned = (*session)->Scan(**tree, "b", 10, &rows);
  if (!scanned.ok()) return std::cerr << scanned << "\n", 1;
  for (const pando::KeyValue& row : rows) std::cout << row.key << " " << row.value << "\n";
}
