#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {

INSTANTIATE_TEST_SUITE_P(Verbs, FabricConformance,
                         testing::Values(ConformanceBackend{
                             "verbs",
                             [](const ConformanceOptions& options,
                                const std::vector<ControlHandler*>& handlers) {
                               return std::make_unique<VerbsTestCluster>(options, handlers);
                             },
                             WhyNoVerbs}),
                         ConformanceName);

}  // namespace pando
