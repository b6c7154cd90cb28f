// A mutex for steps of less than a microsecond: whoever finds it locked looks again for about as
// long before it sleeps. To be put to sleep, and to wake whoever sleeps, costs ten times such a
// step.
//
// Thread safety: it is a std::mutex.
#pragma once

#include <algorithm>
#include <mutex>

namespace pando {

class SpinningMutex {
 public:
  void lock() {
    for (int i = 0; i < kLooks; ++i) {
      if (mutex_.try_lock()) [[likely]]
        return;
      // Short steps end soon: the first looks follow each other closely.
      const int pauses = std::min(i + 1, kPausesMax);
      for (int pause = 0; pause < pauses; ++pause) Pause();
    }
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static constexpr int kLooks = 36, kPausesMax = 8;

  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::mutex mutex_;
};

}  // namespace pando
