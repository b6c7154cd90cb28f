// The same as C++.
#include "compute/c/headers_test.c"
