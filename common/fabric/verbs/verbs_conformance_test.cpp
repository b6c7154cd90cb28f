#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {

INSTANTIATE_TEST_SUITE_P(Verbs, FabricConformance,
                         testing::Values(MakeBackend<VerbsTestCluster>("verbs", WhyNoVerbs)),
                         ConformanceName);

}  // namespace pando
