#include "common/auth/mutual_proof.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

const Handshakes kHandshakes = {"client: version 1", "server: version 1, id 3"};

class MutualProofTest : public testing::Test {
 protected:
  const ClusterSecret secret_ = *ClusterSecret::FromBytes("0123456789abcdef");
  const ClusterSecret other_ = *ClusterSecret::FromBytes("0123456789abcdeF");
};

// What both sides end with, and every message in order.
struct Outcome {
  absl::Status client, server;
  bool client_done = false, server_done = false;
  std::vector<std::string> messages;
};
Outcome RunProof(ClientProof client, ServerProof server) {
  Outcome outcome;
  std::string bytes = client.Hello();
  for (bool to_server = true; !bytes.empty(); to_server = !to_server) {
    outcome.messages.push_back(bytes);
    std::string reply;
    absl::Status& status = to_server ? outcome.server : outcome.client;
    status = to_server ? server.Handle(bytes, &reply) : client.Handle(bytes, &reply);
    bytes = reply;
  }
  outcome.client_done = client.done();
  outcome.server_done = server.done();
  return outcome;
}

TEST_F(MutualProofTest, OneSecretOnBothSides) {
  const Outcome outcome =
      RunProof(ClientProof(&secret_, kHandshakes), ServerProof(&secret_, kHandshakes));
  EXPECT_TRUE(outcome.client.ok() && outcome.server.ok()) << outcome.client << outcome.server;
  EXPECT_TRUE(outcome.client_done && outcome.server_done);
  ASSERT_EQ(outcome.messages.size(), 4u);
  for (const std::string& message : outcome.messages) {
    EXPECT_LE(message.size(), kAuthMessageBytesMax);
    EXPECT_EQ(message.find(secret_.bytes()), std::string::npos);
  }
}

TEST_F(MutualProofTest, TheProofIsTheHmacThatTheHeaderSays) {
  const Outcome outcome =
      RunProof(ClientProof(&secret_, kHandshakes), ServerProof(&secret_, kHandshakes));
  const AuthMessage hello = *ParseAuthMessage(outcome.messages[0]);
  const AuthMessage server = *ParseAuthMessage(outcome.messages[1]);
  const AuthMessage client = *ParseAuthMessage(outcome.messages[2]);
  for (const auto& [label, mac] : {std::pair("pando auth 1: server", server.mac),
                                   std::pair("pando auth 1: client", client.mac)}) {
    std::string text;
    for (const std::string& part : {std::string(label), kHandshakes.client, kHandshakes.server,
                                    std::string(hello.nonce.begin(), hello.nonce.end()),
                                    std::string(server.nonce.begin(), server.nonce.end())}) {
      const uint64_t size = part.size();
      text.append(reinterpret_cast<const char*>(&size), sizeof(size));
      text += part;
    }
    AuthMac expected;
    // The older interface: another way to the same value.
    HMAC(EVP_sha256(), secret_.bytes().data(), static_cast<int>(secret_.bytes().size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), expected.data(),
         nullptr);
    EXPECT_EQ(mac, expected) << label;
  }
}

TEST_F(MutualProofTest, AnotherSecretIsDeniedOnBothSides) {
  const Outcome outcome =
      RunProof(ClientProof(&secret_, kHandshakes), ServerProof(&other_, kHandshakes));
  EXPECT_EQ(outcome.client.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(outcome.server.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(outcome.client_done || outcome.server_done);
  // A client that does not look at the server's proof is found out by the server.
  ServerProof server(&secret_, kHandshakes);
  std::string reply;
  ASSERT_TRUE(server.Handle(ClientProof(&other_, kHandshakes).Hello(), &reply).ok());
  AuthMessage guess = {.type = AuthType::kClientProof};
  const absl::Status status = server.Handle(EncodeAuthMessage(guess), &reply);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ParseAuthMessage(reply)->refusal, AuthRefusal::kWrongProof);
  EXPECT_FALSE(server.done());
}

TEST_F(MutualProofTest, NoSecretOnOneSideIsDeniedOnBoth) {
  const Outcome without =
      RunProof(ClientProof(nullptr, kHandshakes), ServerProof(&secret_, kHandshakes));
  const Outcome with =
      RunProof(ClientProof(&secret_, kHandshakes), ServerProof(nullptr, kHandshakes));
  for (const absl::Status& status : {without.client, without.server, with.client, with.server}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--secret_file"));
  }
  EXPECT_FALSE(without.client_done || without.server_done || with.client_done || with.server_done);
  // Nobody can tell a client that secrets are out of use.
  ClientProof client(&secret_, kHandshakes);
  std::string reply;
  EXPECT_EQ(client.Handle(EncodeAuthMessage({.type = AuthType::kServerWithout}), &reply).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(client.done());
}

TEST_F(MutualProofTest, NoSecretAtAllIsFine) {
  const Outcome outcome =
      RunProof(ClientProof(nullptr, kHandshakes), ServerProof(nullptr, kHandshakes));
  EXPECT_TRUE(outcome.client.ok() && outcome.server.ok()) << outcome.client << outcome.server;
  EXPECT_TRUE(outcome.client_done && outcome.server_done);
  EXPECT_EQ(outcome.messages.size(), 2u);
}

TEST_F(MutualProofTest, AChangedHandshakeIsDenied) {
  for (const Handshakes& seen :
       {Handshakes{"client: version 0", kHandshakes.server}, Handshakes{kHandshakes.client, ""},
        Handshakes{kHandshakes.server, kHandshakes.client},
        // The same bytes, divided elsewhere.
        Handshakes{kHandshakes.client + "s", kHandshakes.server.substr(1)}}) {
    const Outcome outcome =
        RunProof(ClientProof(&secret_, seen), ServerProof(&secret_, kHandshakes));
    EXPECT_EQ(outcome.client.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(outcome.server.code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(MutualProofTest, RecordedMessagesAreWorthNothing) {
  const Outcome recorded =
      RunProof(ClientProof(&secret_, kHandshakes), ServerProof(&secret_, kHandshakes));
  std::string reply;
  ServerProof server(&secret_, kHandshakes);
  ASSERT_TRUE(server.Handle(recorded.messages[0], &reply).ok());
  EXPECT_NE(reply, recorded.messages[1]) << "another nonce each time";
  EXPECT_EQ(server.Handle(recorded.messages[2], &reply).code(),
            absl::StatusCode::kPermissionDenied);
  ClientProof client(&secret_, kHandshakes);
  EXPECT_NE(client.Hello(), recorded.messages[0]);
  EXPECT_EQ(client.Handle(recorded.messages[1], &reply).code(),
            absl::StatusCode::kPermissionDenied);
  // The verdict without the proof.
  ClientProof hasty(&secret_, kHandshakes);
  EXPECT_EQ(hasty.Handle(recorded.messages[3], &reply).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(server.done() || client.done() || hasty.done());
}

TEST_F(MutualProofTest, ReflectedMessagesAreWorthNothing) {
  std::string reply, unused;
  // The server's own proof, sent back as the client's.
  ServerProof server(&secret_, kHandshakes);
  ClientProof client(&secret_, kHandshakes);
  ASSERT_TRUE(server.Handle(client.Hello(), &reply).ok());
  AuthMessage mirrored = *ParseAuthMessage(reply);
  mirrored.type = AuthType::kClientProof;
  EXPECT_EQ(server.Handle(EncodeAuthMessage(mirrored), &unused).code(),
            absl::StatusCode::kPermissionDenied);
  // The client's hello, and its nonce as the server's.
  AuthMessage echo = *ParseAuthMessage(client.Hello());
  ClientProof other_client(&secret_, kHandshakes);
  EXPECT_EQ(other_client.Handle(other_client.Hello(), &unused).code(), absl::StatusCode::kDataLoss);
  echo.type = AuthType::kServerProof;
  EXPECT_EQ(client.Handle(EncodeAuthMessage(echo), &unused).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(server.done() || client.done() || other_client.done());
}

TEST_F(MutualProofTest, EachChangedBitAndEachPartIsRefused) {
  for (size_t bit = 0; bit < 8 * (8 + kAuthMacBytes); ++bit) {
    ServerProof server(&secret_, kHandshakes);
    ClientProof client(&secret_, kHandshakes);
    std::string to_client, to_server, reply;
    ASSERT_TRUE(server.Handle(client.Hello(), &to_client).ok());
    ASSERT_TRUE(client.Handle(to_client, &to_server).ok());
    to_server[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(server.Handle(to_server, &reply).ok()) << bit;
    EXPECT_FALSE(server.done());
  }
  for (size_t bit = 0; bit < 8 * kAuthMessageBytesMax; ++bit) {
    ServerProof server(&secret_, kHandshakes);
    ClientProof client(&secret_, kHandshakes);
    std::string to_client, reply;
    ASSERT_TRUE(server.Handle(client.Hello(), &to_client).ok());
    to_client[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(client.Handle(to_client, &reply).ok()) << bit;
    ClientProof another(&secret_, kHandshakes);
    EXPECT_FALSE(another.Handle(to_client.substr(0, bit / 8), &reply).ok()) << bit;
    EXPECT_FALSE(client.done() || another.done());
  }
}

TEST_F(MutualProofTest, NothingIsTakenAfterTheEnd) {
  ServerProof server(&secret_, kHandshakes);
  ClientProof client(&secret_, kHandshakes);
  std::string reply;
  EXPECT_EQ(server.Handle("junk", &reply).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(server.Handle(client.Hello(), &reply).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reply, "");

  ServerProof fresh(&secret_, kHandshakes);
  std::string proof, verdict;
  ASSERT_TRUE(fresh.Handle(client.Hello(), &reply).ok());
  EXPECT_EQ(fresh.Handle(client.Hello(), &verdict).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(client.Handle(reply, &proof).ok());
  EXPECT_EQ(fresh.Handle(proof, &verdict).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(fresh.done() || client.done());
}

}  // namespace
}  // namespace pando
