// An HTTP endpoint that Prometheus scrapes (GET /metrics). Values are asked for when somebody
// scrapes and at no other time: the code that counts does not know of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/metrics/metric.h"

namespace prometheus {
class Exposer;
}

namespace pando {

// Thread-safe. Its own threads serve it; they sleep between scrapes. Requests that are not finished
// within half a second are given up, those with a body refused at once.
class MetricsEndpoint {
 public:
  struct Label {
    std::string name, value;  // of every metric, like server_id 3
  };
  // Called by the endpoint's threads, several at a time, until the endpoint is destroyed.
  using Source = std::function<MetricList()>;

  // `address`: HOST:PORT, or PORT for the loopback interface; port 0: one that is free.
  // InvalidArgument: no such address; Unavailable: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(std::string_view address,
                                                                Label label, Source source);
  // Waits for scrapes that are under way.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const;

 private:
  class Collector;
  MetricsEndpoint(std::unique_ptr<prometheus::Exposer> exposer,
                  std::shared_ptr<Collector> collector);

  std::unique_ptr<prometheus::Exposer> exposer_;
  std::shared_ptr<Collector> collector_;
};

// The address `offset` ports further, for several processes that got one flag; port 0 stays 0.
// InvalidArgument as above, or no port is left.
absl::StatusOr<std::string> AddressWithOffset(std::string_view address, int offset);

}  // namespace pando
