#include "bench/host/fork_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

// What a child writes: {"answer": ...}, or {"code": of a status, "message": TEXT}.
Json AnswerOf(const absl::StatusOr<Json>& result) {
  if (result.ok()) return {{"answer", *result}};
  return {{"code", static_cast<int>(result.status().code())},
          {"message", std::string(result.status().message())}};
}

void WriteAll(int fd, const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t written = write(fd, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) return;  // nobody reads: the parent is gone
    if (written > 0) at += static_cast<size_t>(written);
  }
}

[[noreturn]] void RunChild(const ForkJob& job, int fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGPIPE, SIG_IGN);
  WriteAll(fd, AnswerOf(job.run()).dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(nullptr);
  _exit(0);
}

std::string Ending(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(wait_status), " (",
                        strsignal(WTERMSIG(wait_status)), ")");
  }
  return absl::StrCat("ended with exit code ", WEXITSTATUS(wait_status));
}

// The children that run now. Ends those that are left.
class Children {
 public:
  explicit Children(const std::vector<ForkJob>& jobs) : jobs_(jobs) {}
  ~Children() {
    for (const Child& child : running_) kill(child.pid, SIGKILL);
    while (!running_.empty()) (void)Reap(0);
  }

  size_t count() const { return running_.size(); }
  absl::Status Start(size_t job);
  // Waits until one has ended.
  absl::StatusOr<std::pair<size_t, Json>> Next();

 private:
  struct Child {
    size_t job = 0;
    pid_t pid = -1;
    int fd = -1;
    std::string text;
  };

  // Reads what is there. True: that was all.
  static bool Drain(Child* child);
  // Takes the child out; how it ended.
  int Reap(size_t index);
  absl::StatusOr<Json> Finish(size_t index);

  const std::vector<ForkJob>& jobs_;
  std::vector<Child> running_;
};

absl::Status Children::Start(size_t job) {
  int fds[2];
  if (pipe(fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  std::fflush(nullptr);  // else the child has a copy of what is buffered
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    close(fds[0]);
    RunChild(jobs_[job], fds[1], parent);
  }
  const int error = errno;
  close(fds[1]);
  if (pid < 0) {
    close(fds[0]);
    return absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(error)));
  }
  running_.push_back({.job = job, .pid = pid, .fd = fds[0]});
  return absl::OkStatus();
}

bool Children::Drain(Child* child) {
  char buffer[64 << 10];
  const ssize_t bytes = read(child->fd, buffer, sizeof(buffer));
  if (bytes > 0) child->text.append(buffer, static_cast<size_t>(bytes));
  return bytes == 0 || (bytes < 0 && errno != EINTR);
}

int Children::Reap(size_t index) {
  const Child child = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  close(child.fd);
  int wait_status = 0;
  while (waitpid(child.pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  return wait_status;
}

absl::StatusOr<Json> Children::Finish(size_t index) {
  const std::string text = std::move(running_[index].text);
  const int wait_status = Reap(index);
  if (wait_status != 0) {
    return absl::InternalError(absl::StrCat("its process ", Ending(wait_status)));
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("answer")) return json["answer"];
  if (json.is_object() && json.contains("code") && json["code"].is_number_integer()) {
    return absl::Status(static_cast<absl::StatusCode>(json["code"].get<int>()),
                        json.value("message", ""));
  }
  return absl::InternalError("its process ended without an answer");
}

absl::StatusOr<std::pair<size_t, Json>> Children::Next() {
  std::vector<pollfd> ready;
  while (true) {
    ready.clear();
    for (const Child& child : running_) ready.push_back({child.fd, POLLIN, 0});
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents == 0 || !Drain(&running_[i])) continue;
      const size_t job = running_[i].job;
      absl::StatusOr<Json> answer = Finish(i);
      if (!answer.ok()) return Annotate(answer.status(), jobs_[job].name);
      return std::pair(job, *std::move(answer));
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<nlohmann::json>> RunForked(
    const std::vector<ForkJob>& jobs, int at_once,
    const std::function<void(size_t job, const nlohmann::json& answer)>& done) {
  std::vector<Json> answers(jobs.size());
  Children children(jobs);
  size_t started = 0;
  while (started < jobs.size() || children.count() > 0) {
    while (started < jobs.size() && children.count() < static_cast<size_t>(at_once)) {
      PANDO_RETURN_IF_ERROR(children.Start(started++));
    }
    PANDO_ASSIGN_OR_RETURN(auto ended, children.Next());
    auto& [job, answer] = ended;
    answers[job] = std::move(answer);
    if (done) done(job, answers[job]);
  }
  return answers;
}

}  // namespace pando::bench
