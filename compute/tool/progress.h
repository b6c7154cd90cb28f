// How far a long command has come: shown on standard error, and kept within a rate.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace pando::tool {

// When the progress of a command is shown.
enum class ShowProgress { kOnTerminal, kAlways, kNever };

// Shows ProgressText() (common/base/progress_text.h) twice a second in one line of a terminal, else
// once a second in a line each, and a last one at the end. Construction and destruction on one
// thread; Add() on any.
class Progress {
 public:
  // `verb`: "loaded".
  Progress(std::string verb, uint64_t total, ShowProgress show);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Add(uint64_t keys, uint64_t part) {
    keys_.fetch_add(keys, std::memory_order_relaxed);
    part_.fetch_add(part, std::memory_order_relaxed);
  }
  // Starts over: earlier work no longer counts.
  void Reset() {
    keys_.store(0);
    part_.store(0);
  }
  uint64_t keys() const { return keys_.load(std::memory_order_relaxed); }
  double Seconds() const;

 private:
  void Run();
  void Show() const;
  std::string Text() const;

  const std::string verb_;
  const uint64_t total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const bool terminal_, shown_;
  std::atomic<uint64_t> keys_{0}, part_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;
};

// Keeps a stream within so many bytes a second on the average. Not thread-safe.
class Throttle {
 public:
  explicit Throttle(uint64_t bytes_per_second) : rate_(bytes_per_second) {}  // 0: no limit

  // Sleeps until these bytes more are allowed.
  void Spend(uint64_t bytes);

 private:
  const uint64_t rate_;
  uint64_t spent_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace pando::tool
