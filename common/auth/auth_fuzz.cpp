// Fuzz target: whatever arrives is a message or a status; what is a message is written again as the
// same bytes; and no bytes that were made without the secret end a proof.
#include "common/auth/mutual_proof.h"
#include "common/base/check.h"
#include "common/base/fuzz.h"

namespace pando {

std::vector<std::string> FuzzSeeds() {
  AuthMessage message;
  message.nonce.fill(7);
  message.mac.fill(9);
  message.refusal = AuthRefusal::kServerHasSecret;
  std::vector<std::string> seeds;
  for (uint16_t type = 1; type <= static_cast<uint16_t>(AuthType::kRefused); ++type) {
    message.type = static_cast<AuthType>(type);
    seeds.push_back(EncodeAuthMessage(message));
  }
  return seeds;
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto message = ParseAuthMessage(bytes);
  if (message.ok()) PANDO_CHECK(EncodeAuthMessage(*message) == bytes);

  static const ClusterSecret& secret =
      *new ClusterSecret(*ClusterSecret::FromBytes("a secret that nobody knows"));
  ServerProof server(&secret, {"client", "server"});
  ClientProof client(&secret, {"client", "server"});
  std::string reply;
  // In each state.
  PANDO_CHECK(client.Handle(bytes, &reply).ok() == false && !client.done());
  if (server.Handle(bytes, &reply).ok()) {
    PANDO_CHECK(message->type == AuthType::kClientHello);
    PANDO_CHECK(!server.Handle(bytes, &reply).ok() && !server.done());
  }
  ServerProof greeted(&secret, {"client", "server"});
  PANDO_CHECK_OK(greeted.Handle(ClientProof(&secret, {"client", "server"}).Hello(), &reply));
  PANDO_CHECK(!greeted.Handle(bytes, &reply).ok() && !greeted.done());
  return 0;
}
