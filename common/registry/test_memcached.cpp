#include "common/registry/test_memcached.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace pando {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool Listens(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  PANDO_CHECK(fd >= 0);
  const sockaddr_in address = Loopback(port);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

void ShortPause() {
  const timespec pause = {0, 5 * kMillisecondNs};
  nanosleep(&pause, nullptr);
}

}  // namespace

uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  PANDO_CHECK(fd >= 0);
  sockaddr_in address = Loopback(0);
  socklen_t bytes = sizeof(address);
  PANDO_CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  PANDO_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

TestMemcached::TestMemcached() {
  // Somebody else may take the port in between.
  constexpr int kTriesMax = 20;
  for (int i = 0; i < kTriesMax; ++i) {
    port_ = FreePort();
    if (TryStart()) return;
  }
  PANDO_CHECK(false) << "no memcached could be started: scripts/setup installs it";
}

TestMemcached::~TestMemcached() { Kill(); }

bool TestMemcached::TryStart() {
  const pid_t parent = getpid();
  const std::string port = std::to_string(port_);
  pid_ = fork();
  PANDO_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // -u is for root, who may not run it otherwise.
    execlp("memcached", "memcached", "-l", "127.0.0.1", "-p", port.c_str(), "-U", "0", "-m", "16",
           "-t", "1", "-u", geteuid() == 0 ? "root" : "", nullptr);
    _exit(127);
  }
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (Listens(port_)) return true;
    ShortPause();
  }
  pid_ = 0;
  return false;
}

std::string TestMemcached::Registry(const std::string& cluster) const {
  return absl::StrCat("memcached://127.0.0.1:", port_, "/", cluster);
}

void TestMemcached::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void TestMemcached::Restart() {
  Kill();
  constexpr int kTriesMax = 200;
  for (int i = 0; i < kTriesMax; ++i) {
    if (TryStart()) return;
    ShortPause();
  }
  PANDO_CHECK(false) << "memcached could not be started again at port " << port_;
}

void TestMemcached::Pause() {
  kill(pid_, SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);
}
void TestMemcached::Resume() { kill(pid_, SIGCONT); }

}  // namespace pando
