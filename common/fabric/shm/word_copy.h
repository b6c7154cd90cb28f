// How bytes cross between private and shared memory on shm: whole aligned 8-byte words, each copied
// by one atomic access, in the order that rule F1 needs. Shared pointers are 8-byte aligned;
// private ones need no alignment.
//
// Inside a line a WRITE goes upwards with release stores and a READ downwards with acquire loads.
// So a reader that finds a new rear word finds everything before it at least as new, and one that
// then still finds the old front word has read nothing new: equal front and rear versions mean one
// write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pando {

inline constexpr size_t kWordBytes = 8;
inline constexpr size_t kShmLineBytes = 64;

using SharedWord = uint64_t __attribute__((may_alias));

inline uint64_t LoadWord(const std::byte* shared) {
  return __atomic_load_n(reinterpret_cast<const SharedWord*>(shared), __ATOMIC_ACQUIRE);
}
inline void StoreWord(std::byte* shared, uint64_t word) {
  __atomic_store_n(reinterpret_cast<SharedWord*>(shared), word, __ATOMIC_RELEASE);
}
// Return the value found.
inline uint64_t CompareSwapWord(std::byte* shared, uint64_t compare, uint64_t swap) {
  __atomic_compare_exchange_n(reinterpret_cast<SharedWord*>(shared), &compare, swap, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return compare;
}
inline uint64_t FetchAddWord(std::byte* shared, uint64_t add) {
  return __atomic_fetch_add(reinterpret_cast<SharedWord*>(shared), add, __ATOMIC_SEQ_CST);
}

// Makes this thread's earlier stores visible to everybody before its later loads. (A locked
// instruction on a private word: what compilers emit for a full fence on x86, and unlike the fence
// known to TSan.)
inline void FullFence() {
#if defined(__x86_64__)
  uint64_t word = 0;
  __atomic_fetch_or(&word, 1, __ATOMIC_SEQ_CST);
  asm volatile("" : : "r"(&word) : "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// `bytes` is a multiple of 8.
inline void CopyToShared(std::byte* shared, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kWordBytes) {
    uint64_t word;
    std::memcpy(&word, from + i, kWordBytes);
    StoreWord(shared + i, word);
  }
}

inline void CopyWordsDown(std::byte* to, const std::byte* shared, size_t bytes) {
  for (size_t i = bytes; i != 0;) {
    i -= kWordBytes;
    const uint64_t word = LoadWord(shared + i);
    std::memcpy(to + i, &word, kWordBytes);
  }
}

inline void StorePrivate(std::byte* to, uint64_t word) { std::memcpy(to, &word, kWordBytes); }

// One whole line. Spelled out: all words are loaded before the first is stored, so nothing has to
// be kept in order but the loads.
inline void CopyLineDown(std::byte* to, const std::byte* shared) {
  const uint64_t w7 = LoadWord(shared + 56), w6 = LoadWord(shared + 48);
  const uint64_t w5 = LoadWord(shared + 40), w4 = LoadWord(shared + 32);
  const uint64_t w3 = LoadWord(shared + 24), w2 = LoadWord(shared + 16);
  const uint64_t w1 = LoadWord(shared + 8), w0 = LoadWord(shared);
  StorePrivate(to, w0);
  StorePrivate(to + 8, w1);
  StorePrivate(to + 16, w2);
  StorePrivate(to + 24, w3);
  StorePrivate(to + 32, w4);
  StorePrivate(to + 40, w5);
  StorePrivate(to + 48, w6);
  StorePrivate(to + 56, w7);
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
// Where there is AVX an aligned load of 16 bytes is atomic (Intel SDM vol. 3A, 9.1.1; AMD APM vol.
// 2, 7.3.2), and x86 keeps loads in order: half as many of them will do. TSan knows atomics of the
// language only.
inline const bool kWideLoadsAreAtomic = __builtin_cpu_supports("avx");

inline void CopyLineDownWide(std::byte* to, const std::byte* shared) {
  using Wide = long long __attribute__((vector_size(16), may_alias));
  const auto load = [shared](int i) {  // one instruction, whatever the compiler thinks
    Wide word;
    asm volatile("movdqa %1, %0" : "=x"(word) : "m"(reinterpret_cast<const Wide*>(shared)[i]));
    return word;
  };
  const Wide w3 = load(3), w2 = load(2), w1 = load(1), w0 = load(0);
  std::memcpy(to, &w0, 16);
  std::memcpy(to + 16, &w1, 16);
  std::memcpy(to + 32, &w2, 16);
  std::memcpy(to + 48, &w3, 16);
}

inline void CopyLinesDown(std::byte* to, const std::byte* shared, size_t lines) {
  const size_t bytes = lines * kShmLineBytes;
  if (kWideLoadsAreAtomic) [[likely]] {
    for (size_t i = 0; i < bytes; i += kShmLineBytes) CopyLineDownWide(to + i, shared + i);
  } else {
    for (size_t i = 0; i < bytes; i += kShmLineBytes) CopyLineDown(to + i, shared + i);
  }
  asm volatile("" : : : "memory");  // no later access moves up between them
}
#else
inline void CopyLinesDown(std::byte* to, const std::byte* shared, size_t lines) {
  const size_t bytes = lines * kShmLineBytes;
  for (size_t i = 0; i < bytes; i += kShmLineBytes) CopyLineDown(to + i, shared + i);
}
#endif

// Lines in ascending order, each downwards. `bytes` is a multiple of 8. Callers prefetch: a copy
// alone keeps few lines in flight.
inline void CopyFromShared(std::byte* to, const std::byte* shared, size_t bytes) {
  const size_t into_line = reinterpret_cast<uintptr_t>(shared) % kShmLineBytes;
  if (into_line != 0) {
    const size_t head = bytes < kShmLineBytes - into_line ? bytes : kShmLineBytes - into_line;
    CopyWordsDown(to, shared, head);
    to += head;
    shared += head;
    bytes -= head;
  }
  const size_t whole = bytes - bytes % kShmLineBytes;
  CopyLinesDown(to, shared, whole / kShmLineBytes);
  CopyWordsDown(to + whole, shared + whole, bytes - whole);
}

}  // namespace pando
