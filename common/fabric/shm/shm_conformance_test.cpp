#include "common/fabric/shm/shm_test_cluster.h"

namespace pando {

INSTANTIATE_TEST_SUITE_P(Shm, FabricConformance,
                         testing::Values(MakeBackend<ShmTestCluster>("shm")), ConformanceName);

}  // namespace pando
