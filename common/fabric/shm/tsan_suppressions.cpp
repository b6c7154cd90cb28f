// For the tests under TSan: the lock inside the C library's time zone code is invisible to it, and
// two threads that log take turns there.
extern "C" const char* __tsan_default_suppressions() { return "race:tzset_internal\n"; }
