#include "common/fabric/verbs/litmus_verdict.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

// "31,402".
std::string Grouped(uint64_t count) {
  std::string text = std::to_string(count);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

bool OnChip(const LitmusResult& result) {
  return std::any_of(result.locks.begin(), result.locks.end(),
                     [](const LockLitmus& lock) { return lock.on_chip; });
}

bool Torn(const LitmusResult& result) {
  return std::any_of(result.lines.begin(), result.lines.end(),
                     [](const LinesLitmus& lines) { return lines.torn > 0; });
}

// In the memory where a server's lock table would lie.
bool WriteUndone(const LitmusResult& result) {
  const bool on_chip = OnChip(result);
  return std::any_of(result.locks.begin(), result.locks.end(), [&](const LockLitmus& lock) {
    return lock.on_chip == on_chip && lock.release == ReleaseVerb::kWrite && lock.undone > 0;
  });
}

bool CasBroken(const LitmusResult& result) {
  return std::any_of(result.locks.begin(), result.locks.end(), [](const LockLitmus& lock) {
    return lock.wrong_cas > 0 || (lock.release == ReleaseVerb::kCompareSwap && lock.undone > 0);
  });
}

bool Stale(const LitmusResult& result, bool on_chip) {
  return std::any_of(result.releases.begin(), result.releases.end(),
                     [&](const ReleaseLitmus& release) {
                       return release.on_chip == on_chip && release.stale > 0;
                     });
}

std::string DescribeRelease(const ReleaseLitmus& release) {
  return absl::StrCat(
      "data in host memory behind a lock in ", release.on_chip ? "NIC" : "host",
      " memory, released by ", release.release == ReleaseVerb::kWrite ? "WRITE" : "CAS", ": taken ",
      Grouped(release.taken), " times, ", Grouped(release.stale), " found older data");
}

std::string DescribeLock(const LockLitmus& lock) {
  return absl::StrCat(
      "lock in ", lock.on_chip ? "NIC" : "host", " memory: ", Grouped(lock.releases),
      " releases by ", lock.release == ReleaseVerb::kWrite ? "WRITE" : "CAS", ", ",
      Grouped(lock.undone), " undone; ", Grouped(lock.failed_cas),
      " CAS of others failed meanwhile",
      lock.wrong_cas > 0 ? absl::StrCat("; ", Grouped(lock.wrong_cas), " CAS were wrong") : "");
}

std::string DescribeLines(const LinesLitmus& lines) {
  return absl::StrCat(lines.bytes, " bytes: ", Grouped(lines.writes), " WRITEs, ",
                      Grouped(lines.reads), " READs; ", Grouped(lines.torn), " of ",
                      Grouped(lines.lines), " lines torn; ", Grouped(lines.mixed),
                      " READs met several WRITEs");
}

std::string WhyWriteUnlock(const LitmusResult& result, bool holds) {
  if (WriteUndone(result)) return "a CAS that failed has undone a WRITE: locks are released by CAS";
  if (result.is_software) {
    return "none was undone, but a kernel may write a word back whose CAS failed: locks are "
           "released by CAS";
  }
  return holds ? "none was undone in the NIC's own memory"
               : "none was undone, but nothing promises it in host memory: locks are released "
                 "by CAS";
}

std::string WhyLinesAtomic(const LitmusResult& result) {
  if (Torn(result)) return "lines were torn: they have checksums";
  if (result.is_software) {
    return "none was torn, but a kernel copies them as it likes: lines have checksums";
  }
  return "none was torn";
}

}  // namespace

LitmusVerdict JudgeLitmus(const LitmusResult& result) {
  LitmusVerdict verdict;
  const bool write_unlock_assumed = OnChip(result) && !result.is_software;
  verdict.write_unlock = write_unlock_assumed && !WriteUndone(result);
  verdict.lines_atomic = !result.is_software && !Torn(result);
  if (CasBroken(result)) {
    verdict.contradiction =
        absl::FailedPreconditionError("CAS is not atomic on this device: do not use it for Pando");
  } else if (!result.is_software && Torn(result)) {
    verdict.contradiction = absl::FailedPreconditionError(
        "Pando takes lines of this NIC for atomic, and they are not: do not use it for Pando");
  } else if (Stale(result, false)) {
    verdict.contradiction = absl::FailedPreconditionError(
        "a lock of this device can be taken before what was written under it can be read: do not "
        "use it for Pando");
  } else if (Stale(result, true)) {
    verdict.contradiction = absl::FailedPreconditionError(
        "a lock in this NIC's memory can be taken before what was written under it can be read "
        "from host memory: start memory servers with --nodevice_memory");
  } else if (write_unlock_assumed && !verdict.write_unlock) {
    verdict.contradiction = absl::FailedPreconditionError(
        "Pando releases locks in this NIC's memory by WRITE, which can be undone: start memory "
        "servers with --nodevice_memory");
  }
  return verdict;
}

std::string DescribeLitmus(const LitmusResult& result) {
  const LitmusVerdict verdict = JudgeLitmus(result);
  std::string text = absl::StrCat("litmus of ", result.device, ", ",
                                  result.is_software ? "software" : "a NIC", ", by loopback\n");
  for (const LockLitmus& lock : result.locks) {
    absl::StrAppend(&text, "  ", DescribeLock(lock), "\n");
  }
  for (const ReleaseLitmus& release : result.releases) {
    absl::StrAppend(&text, "  ", DescribeRelease(release), "\n");
  }
  if (result.on_chip_refused) {
    absl::StrAppend(
        &text,
        "  locks in NIC memory were not tested: it gives none, as others have taken it; "
        "end pando-memory on this device and test again\n");
  } else if (!OnChip(result)) {
    absl::StrAppend(&text, "  no lock in NIC memory: it has none\n");
  }
  for (const LinesLitmus& lines : result.lines) {
    absl::StrAppend(&text, "  ", DescribeLines(lines), "\n");
  }
  absl::StrAppend(&text, "write_unlock ", verdict.write_unlock ? "yes" : "no", ": ",
                  WhyWriteUnlock(result, verdict.write_unlock), "\n");
  absl::StrAppend(&text, "lines_atomic ", verdict.lines_atomic ? "yes" : "no", ": ",
                  WhyLinesAtomic(result), "\n");
  absl::StrAppend(&text,
                  "What was seen is so; what was not seen may still be: seconds of tests prove "
                  "nothing about hardware.\n");
  return text;
}

}  // namespace pando
