// Ctrl-C and friends as something to poll for.
#pragma once

namespace pando::bench {

// From now on SIGINT, SIGTERM and SIGHUP make StopSignal() non-zero and the returned descriptor
// readable. A second signal ends the process at once; its children follow. Once per process.
int CatchStopSignals();

// The signal that came first; 0 if none did. Any thread.
int StopSignal();

}  // namespace pando::bench
