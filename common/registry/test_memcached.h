// A memcached for tests: a process of its own on 127.0.0.1, on a port that was free. Ends with this
// object, and with the test program. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace pando {

class TestMemcached {
 public:
  // Ends the program with a message if there is no memcached (scripts/setup installs it).
  TestMemcached();
  ~TestMemcached();
  TestMemcached(const TestMemcached&) = delete;
  TestMemcached& operator=(const TestMemcached&) = delete;

  uint16_t port() const { return port_; }
  // "memcached://127.0.0.1:PORT/CLUSTER"
  std::string Registry(const std::string& cluster) const;

  void Kill();
  // Again, empty, at the same port.
  void Restart();
  // From now on, and no more, connections are made but never answered.
  void Pause();
  void Resume();

 private:
  bool TryStart();

  uint16_t port_ = 0;
  pid_t pid_ = 0;
};

// A port of 127.0.0.1 that nobody listens at, at the moment.
uint16_t FreePort();

}  // namespace pando
