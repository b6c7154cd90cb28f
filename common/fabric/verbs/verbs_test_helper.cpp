// The other process of the tests of links over RDMA: verbs_test_helper HOST:PORT is a compute
// server there that sends back what peers send it. Prints a line once it is ready.
#include <stdio.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/fabric/peer_echo.h"
#include "common/fabric/verbs/verbs_peers.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  auto device = pando::VerbsDevice::Open({});
  PANDO_CHECK(device.ok()) << device.status();
  pando::PeerEcho echo;
  pando::PeerOptions options;
  options.identity = {9, 9};
  options.acceptor = &echo;
  options.address = argv[1];
  const auto port = pando::OpenVerbsPeers(*device, {}, options);
  PANDO_CHECK(port.ok()) << port.status();
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
