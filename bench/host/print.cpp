#include "bench/host/print.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace pando::bench {

absl::Status Print(const std::string& text) {
  // What fputs() takes may only be buffered.
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write standard output: ", std::strerror(errno)));
}

}  // namespace pando::bench
