// A compute server for tool_test: puts and erases keys of a tree until it is killed, and says what
// it was told. owned_writer REGISTRY TREE [FIRST]
//
// Its tasks have the numbers from FIRST (0) on, which their keys begin with.
//
// Lines on standard output, each written at once: "put KEY VALUE" and "erased KEY" after the
// operation was acknowledged, "erasing KEY" before it is called. No key is put twice.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "pando/client.h"

namespace pando {
namespace {

constexpr int kTasks = 16;
constexpr int kEraseEach = 4;

void Say(std::string_view line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) exit(1);
}

void Await(const absl::Status& status, std::string_view what) {
  if (status.ok()) return;
  fprintf(stderr, "owned_writer: %s: %s\n", std::string(what).c_str(), status.ToString().c_str());
  exit(1);
}

void Work(Session* session, const Tree& tree, int task) {
  for (uint64_t i = 0;; ++i) {
    const std::string key = absl::StrCat(task, "-", i), value = absl::StrCat(i);
    Await(session->Put(tree, key, value), "put");
    Say(absl::StrCat("put ", key, " ", value, "\n"));
    if (i % kEraseEach != kEraseEach - 1) continue;
    const std::string old = absl::StrCat(task, "-", i - kEraseEach / 2);
    Say(absl::StrCat("erasing ", old, "\n"));
    Await(session->Erase(tree, old), "erase");
    Say(absl::StrCat("erased ", old, "\n"));
  }
}

int Run(const std::string& registry, const std::string& name, int first) {
  const auto client = Client::Connect({.registry = registry, .owner = true, .log_bytes = 4 << 20});
  Await(client.status(), "connect");
  const auto tree = (*client)->OpenTree(name);
  Await(tree.status(), "open");
  const auto session = (*client)->NewSession();
  Await(session.status(), "session");
  for (int task = 0; task < kTasks; ++task) {
    (*session)->Spawn([&, task] { Work(session->get(), **tree, first + task); });
  }
  (*session)->Run();
  return 0;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  return pando::Run(argv[1], argv[2], argc == 4 ? atoi(argv[3]) : 0);
}
