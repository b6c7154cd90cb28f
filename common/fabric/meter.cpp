#include "common/fabric/meter.h"

namespace pando {

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
