// What the shm tests and their helper process agree on, and how the tests start it.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/chain.h"

namespace pando {

// The chains that are killed at every instruction. Everything is kOldByte before and kNewByte
// afterwards.
struct KillScenario {
  static constexpr int kOldByte = 0x11;
  static constexpr int kNewByte = 0x22;
  static constexpr uint32_t kBytesMax = 256;
  static constexpr int kMayNotTrace = 77;  // exit status

  struct Target {
    MemorySpace space;
    uint64_t offset;
    uint32_t bytes;
  };
  // In chain order.
  static std::vector<Target> Get(int scenario) {
    switch (scenario) {
      case 0:  // one line
        return {{MemorySpace::kMain, 4096, 64}};
      case 1:  // four lines
        return {{MemorySpace::kMain, 8192, 256}};
      default:  // two write-backs and a release, as an update that touches two runs of lines
        return {{MemorySpace::kMain, 4096, 64},
                {MemorySpace::kMain, 4096 + 256, 128},
                {MemorySpace::kLocks, 64, 8}};
    }
  }
};

struct HammerArea {
  static constexpr uint32_t kBytes = 1024;
  static uint64_t First(int thread) { return 65536 + 2 * kBytes * static_cast<uint64_t>(thread); }
  static uint64_t Second(int thread) { return First(thread) + kBytes; }
};

// The helper, running. Destruction kills it.
class HelperProcess {
 public:
  // Returns when the helper, or another program beside the test's, says that it is ready.
  explicit HelperProcess(const std::vector<std::string>& arguments,
                         const char* program = "shm_test_helper") {
    std::vector<std::string> words = {
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int out[2];
    PANDO_CHECK_EQ(pipe(out), 0);
    pid_ = vfork();
    if (pid_ == 0) {
      dup2(out[1], 1);
      close(out[0]);
      close(out[1]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    char line[6];
    ready_ = read(out[0], line, sizeof(line)) == sizeof(line);
    close(out[0]);
  }
  ~HelperProcess() { Kill(SIGKILL); }
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  bool ready() const { return ready_; }
  pid_t pid() const { return pid_; }
  void Signal(int signal) { kill(pid_, signal); }
  // Waits for a stop or the end; waitpid()'s status.
  int Wait() {
    int status = 0;
    PANDO_CHECK_EQ(waitpid(pid_, &status, 0), pid_);
    if (WIFEXITED(status) || WIFSIGNALED(status)) pid_ = -1;
    return status;
  }
  // Returns when the process has ended.
  void Kill(int signal) {
    if (pid_ < 0) return;
    kill(pid_, signal);
    while (pid_ >= 0) Wait();
  }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

}  // namespace pando
