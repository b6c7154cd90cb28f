// For tests: a directory for each object, also of the same test run twice at once; removed with all
// that is in it. The path is short, because sockets go into it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "common/base/check.h"

namespace pando {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/pando-test-XXXXXX";
    PANDO_CHECK(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pando
