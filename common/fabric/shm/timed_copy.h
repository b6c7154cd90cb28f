// Rule F2 on shm: a line's entry version comes around after 256 WRITEs, so a reader that is
// preempted inside a line (or between the lines of one slot) may meet the version it saw before.
// Hence copies from shared memory are timed, and one that was interrupted for long enough for that
// is made again. Nobody above has to time READs, however long.
//
// A copy is timed in segments of 16 lines. Any two neighbours together (so whatever slot there is:
// it has at most 10 lines) have to be copied within kWindowNs, which is too short for even 128
// WRITEs of one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/fabric/shm/word_copy.h"

namespace pando {

struct TimedCopy {
  static constexpr size_t kSegmentBytes = 16 * kShmLineBytes;

  // No two WRITEs of one line are closer together than this. The shortest chain that writes a line
  // (WriteOneLine of shm_bench) took 25 ns on a 2.6 GHz EPYC: its intent, the line and a full
  // fence. Half a lap of the version at 20 ns is a whole lap at 10 ns, which leaves room for
  // machines more than twice as fast. Sanitizers slow writers and readers alike.
#if defined(__SANITIZE_THREAD__)
  static constexpr int64_t kMinWriteIntervalNs = 400;
#elif defined(__SANITIZE_ADDRESS__)
  static constexpr int64_t kMinWriteIntervalNs = 50;
#else
  static constexpr int64_t kMinWriteIntervalNs = 20;
#endif
  static constexpr int64_t kWindowNs = 128 * kMinWriteIntervalNs;

  // An interruption lasts for a time slice, then there is a fresh one; first touches of pages take
  // some tries, too.
  static constexpr int kTriesMax = 64;

  // As CopyFromShared(). `*time_ns`: a time shortly before the call, and the end of the copy
  // afterwards. False: it changed under every try.
  template <typename Now>
  static bool Copy(std::byte* to, const std::byte* shared, size_t bytes, const Now& now,
                   int64_t* time_ns) {
    for (int i = 0; i < kTriesMax; ++i) {
      if (CopyOnce(to, shared, bytes, now, time_ns)) [[likely]]
        return true;
    }
    // Not interrupted but slow: a debugger, an emulator, a profiler. What two complete copies in a
    // row agree on was there between them, unless every line that changed went a whole lap in just
    // that time.
    for (int i = 0; i < kTriesMax; ++i) {
      CopyFromShared(to, shared, bytes);
      *time_ns = now();
      if (SameAsShared(to, shared, bytes)) return true;
    }
    return false;
  }

 private:
  static bool SameAsShared(const std::byte* copy, const std::byte* shared, size_t bytes) {
    for (size_t i = 0; i < bytes; i += kWordBytes) {
      uint64_t word;
      std::memcpy(&word, copy + i, kWordBytes);
      if (LoadWord(shared + i) != word) return false;
    }
    return true;
  }

  template <typename Now>
  static bool CopyOnce(std::byte* to, const std::byte* shared, size_t bytes, const Now& now,
                       int64_t* time_ns) {
    int64_t window_start_ns = *time_ns;
    // The first segment ends at a line's end like all others.
    size_t segment = kSegmentBytes - reinterpret_cast<uintptr_t>(shared) % kShmLineBytes;
    while (true) {
      if (segment > bytes) segment = bytes;
      const int64_t segment_start_ns = *time_ns;
      CopyFromShared(to, shared, segment);
      *time_ns = now();
      if (*time_ns - window_start_ns > kWindowNs) [[unlikely]]
        return false;
      if (segment == bytes) [[likely]]
        return true;
      window_start_ns = segment_start_ns;
      to += segment;
      shared += segment;
      bytes -= segment;
      segment = kSegmentBytes;
    }
  }
};

}  // namespace pando
