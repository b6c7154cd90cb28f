#include "common/fabric/shm/shm_test_cluster.h"

namespace pando {

INSTANTIATE_TEST_SUITE_P(Shm, FabricConformance,
                         testing::Values(ConformanceBackend{
                             "shm",
                             [](const ConformanceOptions& options,
                                const std::vector<ControlHandler*>& handlers) {
                               return std::make_unique<ShmTestCluster>(options, handlers);
                             }}),
                         ConformanceName);

}  // namespace pando
