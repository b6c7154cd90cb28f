#include "common/program/file_limit.h"

#include <sys/resource.h>

namespace pando {

FileLimit GetFileLimit() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  return {files.rlim_cur, files.rlim_max};
}

uint64_t RaiseFileLimit() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);  // where that is refused, what was there stays
  return GetFileLimit().now;
}

}  // namespace pando
