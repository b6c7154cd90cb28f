#include "bench/host/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace pando::bench {
namespace {

constexpr int kExecFailed = 127;
constexpr int64_t kWaitStepNs = 2 * kMillisecondNs;

// In the child, after fork(): async-signal-safe calls only.
[[noreturn]] void BecomeProgram(char* const* arguments, int log_fd, int channel_fd,
                                int death_signal, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(kExecFailed);  // it ended before the call
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (log_fd >= 0) {
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
  }
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  if (channel_fd == Process::kChannelFd) {
    fcntl(channel_fd, F_SETFD, 0);  // dup2 onto itself would keep close-on-exec
  } else if (channel_fd >= 0) {
    dup2(channel_fd, Process::kChannelFd);
  }
  execv(arguments[0], arguments);
  _exit(kExecFailed);
}

}  // namespace

absl::StatusOr<Process> Process::Spawn(const Options& options) {
  const std::string& program = options.arguments.front();
  if (access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot run ", program, ": ", std::strerror(errno)));
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  int log_fd = -1;
  if (!options.log_file.empty()) {
    log_fd = open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", options.log_file, ": ", std::strerror(errno)));
    }
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeProgram(arguments.data(), log_fd, options.channel_fd, options.death_signal, parent);
  }
  const int fork_error = errno;
  if (log_fd >= 0) close(log_fd);
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", program, ": ", std::strerror(fork_error)));
  }
  Process process;
  process.pid_ = pid;
  process.name_ = program.substr(program.rfind('/') + 1);
  process.log_file_ = options.log_file;
  return process;
}

Process::Process(Process&& other) noexcept { *this = std::move(other); }

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(name_, other.name_);
  std::swap(log_file_, other.log_file_);
  std::swap(ending_, other.ending_);
  std::swap(ended_well_, other.ended_well_);
  return *this;
}

Process::~Process() {
  if (pid_ < 0 || HasEnded()) return;
  Signal(SIGKILL);
  int wait_status = 0;
  while (waitpid(pid_, &wait_status, 0) < 0 && errno == EINTR) {
  }
}

void Process::NoteEnding(int wait_status) {
  ended_well_ = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  ending_ = WIFEXITED(wait_status) ? absl::StrCat("exited with ", WEXITSTATUS(wait_status))
                                   : absl::StrCat("was killed by signal ", WTERMSIG(wait_status),
                                                  " (", strsignal(WTERMSIG(wait_status)), ")");
}

bool Process::HasEnded() {
  if (pid_ < 0 || ending_.has_value()) return true;
  int wait_status = 0;
  if (waitpid(pid_, &wait_status, WNOHANG) != pid_) return false;
  NoteEnding(wait_status);
  return true;
}

bool Process::WaitFor(int timeout_ms) {
  const int64_t deadline_ns = RealClock().NowNs() + timeout_ms * kMillisecondNs;
  while (!HasEnded()) {
    if (RealClock().NowNs() >= deadline_ns) return false;
    const timespec step = {0, kWaitStepNs};
    nanosleep(&step, nullptr);
  }
  return true;
}

void Process::Signal(int signal) {
  if (!HasEnded()) kill(pid_, signal);
}

void Stop(std::vector<Process>* processes, int grace_ms) {
  for (Process& process : *processes) process.Signal(SIGTERM);
  const int64_t deadline_ns = RealClock().NowNs() + grace_ms * kMillisecondNs;
  for (Process& process : *processes) {
    const int64_t left_ns = std::max<int64_t>(0, deadline_ns - RealClock().NowNs());
    process.WaitFor(static_cast<int>(left_ns / kMillisecondNs));
  }
  processes->clear();  // kills what is left
}

std::string WhyEnded(const Process& process) {
  std::string said = Tail(process.log_file());
  // Programs that exit with a failure say why.
  if (said.empty() && !process.log_file().empty() && !process.ended_well() &&
      process.ending()->starts_with("exited")) {
    said = absl::StrCat("It could not say why: is there room where ", process.log_file(),
                        " is? TMPDIR=DIRECTORY puts it elsewhere.");
  }
  return absl::StrCat(*process.ending(), "\n", said);
}

std::string Tail(const std::string& file, size_t bytes) {
  std::ifstream stream(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (text.size() > bytes) text.erase(0, text.size() - bytes);
  return text;
}

}  // namespace pando::bench
