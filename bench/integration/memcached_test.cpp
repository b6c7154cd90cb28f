// Servers and clients that find each other by a memcached, and what happens to them without it.
#include "bench/integration/integration_cluster.h"
#include "common/registry/test_memcached.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

std::string SpacedKey(int i) { return "key " + std::to_string(i); }

TEST(MemcachedIntegrationTest, WorkGoesOnWithoutTheMemcached) {
  TestMemcached memcached;
  IntegrationCluster cluster({.registry = memcached.Registry("words")});
  auto client = cluster.NewClient();
  auto tree = client->CreateTree("words", {});
  ASSERT_OK(tree);
  auto session = client->NewSession();
  ASSERT_OK(session);
  constexpr int kKeys = 1000;
  for (int i = 0; i < kKeys; ++i) ASSERT_OK((*session)->Put(**tree, SpacedKey(i), "before"));

  memcached.Kill();
  for (int i = 0; i < kKeys; ++i) ASSERT_OK((*session)->Put(**tree, SpacedKey(i), "after"));
  auto second_session = client->NewSession();
  ASSERT_OK(second_session);
  ASSERT_OK(client->CreateTree("more words", {}));
  EXPECT_EQ(*(*second_session)->Get(**tree, SpacedKey(7)), "after");
  EXPECT_CODE(Client::Connect(cluster.ClientDefaults()), Unavailable);

  // Empty again: the servers say where they are, without being started again.
  memcached.Restart();
  ClientOptions patient = cluster.ClientDefaults();
  patient.connect_timeout_ms = 60'000;
  auto late = Client::Connect(patient);
  ASSERT_OK(late);
  auto late_tree = (*late)->OpenTree("words");
  ASSERT_OK(late_tree);
  auto late_session = (*late)->NewSession();
  ASSERT_OK(late_session);
  EXPECT_EQ(*(*late_session)->Get(**late_tree, SpacedKey(kKeys - 1)), "after");
}

TEST(MemcachedIntegrationTest, ClustersShareAMemcachedAndAreStartedAgain) {
  TestMemcached memcached;
  IntegrationCluster one({.registry = memcached.Registry("one")});
  IntegrationCluster two({.memory_servers = 1, .registry = memcached.Registry("two")});
  for (int life = 0; life < 3; ++life) {
    for (IntegrationCluster* cluster : {&one, &two}) {
      auto client = cluster->NewClient();
      EXPECT_EQ(client->Servers().size(), cluster == &one ? 2u : 1u);
      EXPECT_TRUE(client->ListTrees()->empty());
      ASSERT_OK(client->CreateTree("words", {}));
      client.reset();
      cluster->StopAll();
      cluster->StartAll();
    }
  }
}

}  // namespace
}  // namespace pando
