#include "common/fabric/meter.h"

namespace pando {

void Meter::Count(const Chain& chain) {
  ++chains;
  round_trips += chain.round_trips();
  for (const Verb& verb : chain.verbs()) {
    switch (verb.kind) {
      case VerbKind::kRead:
        ++reads;
        bytes_read += verb.bytes;
        break;
      case VerbKind::kWrite:
        ++writes;
        bytes_written += verb.bytes;
        break;
      case VerbKind::kCompareSwap:
        ++cas;
        bytes_written += verb.bytes;
        break;
      case VerbKind::kFetchAdd:
        ++faa;
        bytes_written += verb.bytes;
        break;
    }
  }
}

void Meter::Add(const Meter& other) {
  reads += other.reads;
  writes += other.writes;
  cas += other.cas;
  faa += other.faa;
  chains += other.chains;
  round_trips += other.round_trips;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  calls += other.calls;
}

}  // namespace pando
