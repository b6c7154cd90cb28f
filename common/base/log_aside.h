// Lines for the log of a thread that may not wait: an application's sink, or the pipe behind
// stderr, may take its time. Another thread says them, in their order.
//
// Thread-safe; destruction waits until the last line is said. Invariants:
//   1. Warn() waits for nobody, unless the system has no thread: then it says the line itself.
//   2. At most kLinesMax lines wait; of those that come meanwhile the log gets the number.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace pando {

class LogAside {
 public:
  static constexpr size_t kLinesMax = 1024;

  LogAside() = default;
  ~LogAside();
  LogAside(const LogAside&) = delete;
  LogAside& operator=(const LogAside&) = delete;

  // `file` and `line`: __FILE__ and __LINE__, as those of PANDO_LOG.
  void Warn(const char* file, int line, std::string text);

 private:
  struct Line {
    const char* file;
    int line;
    std::string text;

    void Say() const;
  };
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Line> lines_;
  uint64_t left_out_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // from the first line on
};

}  // namespace pando
