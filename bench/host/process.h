// A child process that never outlives its parent.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pando::bench {

// Move-only; not thread-safe. Destruction kills (SIGKILL) and waits if the process still runs.
// Invariant: the child gets SIGKILL (or `death_signal`) when the thread that spawned it ends,
// however it ends; spawn from a thread that lives as long as the program.
class Process {
 public:
  static constexpr int kChannelFd = 3;  // where `channel_fd` arrives

  struct Options {
    std::vector<std::string> arguments;  // the program first, with its path
    std::string log_file;                // standard output and error; empty: the parent's
    int channel_fd = -1;                 // becomes kChannelFd in the child; -1: none
    int death_signal = 9;                // SIGKILL
  };
  // NotFound: no such program. The child is in a process group of its own, so that Ctrl-C reaches
  // the parent only.
  static absl::StatusOr<Process> Spawn(const Options& options);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }
  const std::string& log_file() const { return log_file_; }
  // Set once it has ended: "exited with 1", "was killed by signal 9".
  const std::optional<std::string>& ending() const { return ending_; }
  bool ended_well() const { return ended_well_; }

  // Looks without waiting; true if it has ended.
  bool HasEnded();
  // Waits that long; true if it has ended.
  bool WaitFor(int timeout_ms);
  void Signal(int signal);

 private:
  Process() = default;
  void NoteEnding(int wait_status);

  pid_t pid_ = -1;
  std::string name_;
  std::string log_file_;
  std::optional<std::string> ending_;
  bool ended_well_ = false;
};

// Asks with SIGTERM, waits `grace_ms` for all of them together, then insists with SIGKILL.
void Stop(std::vector<Process>* processes, int grace_ms);

// Of one that has ended: how, and what it said last; where that is nothing, what may have kept it.
std::string WhyEnded(const Process& process);

// The last lines of a file, for error messages; empty if there are none.
std::string Tail(const std::string& file, size_t bytes = 2'000);

}  // namespace pando::bench
