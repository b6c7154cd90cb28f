#include "common/metrics/endpoint.h"

#include <CivetServer.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <charconv>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr std::string_view kLoopback = "127.0.0.1";
constexpr int kPortMax = 65535;
// A scraper's request is one packet. A client that takes longer to send it, or to take the answer,
// loses the thread.
constexpr char kRequestTimeoutMs[] = "500";
// So many half-open requests, and a scrape still has a thread at once; twice as many, and it has
// one after the time above.
constexpr char kThreads[] = "16";

// Of a request with a body the HTTP server would read all before it goes on, for as long as some
// of it comes now and then. The thread is wanted back: the answer is an error, and the end.
int RefuseBody(mg_connection* connection) {
  const char* const length = mg_get_header(connection, "Content-Length");
  const bool has_body = mg_get_header(connection, "Transfer-Encoding") != nullptr ||
                        (length != nullptr && std::string_view(length) != "0");
  if (!has_body) return 0;
  constexpr int kTooLarge = 413;
  mg_send_http_error(connection, kTooLarge, "%s", "metrics are asked for without a body");
  return kTooLarge;
}

struct Address {
  std::string host;
  int port = 0;
};

// The HTTP server reads more into an address (lists, TLS): only what is plainly host and port
// reaches it.
bool IsHost(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    return !host.empty() &&
           host.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
  }
  return !host.empty() && host.find_first_not_of(
                              "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-") ==
                              std::string_view::npos;
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  Address address = {std::string(kLoopback)};
  std::string_view port = text;
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    address.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 0 ||
      address.port > kPortMax || !IsHost(address.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(text), "' is no address for metrics: write HOST:PORT, or PORT alone"));
  }
  return address;
}

std::string ToString(const Address& address) {
  return absl::StrCat(address.host, ":", address.port);
}

}  // namespace

class MetricsEndpoint::Collector : public prometheus::Collectable {
 public:
  Collector(Label label, Source source) : label_(std::move(label)), source_(std::move(source)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const Metric& metric : source_()) {
      prometheus::MetricFamily& family = families.emplace_back();
      family.name = metric.info.name;
      family.help = metric.info.help;
      prometheus::ClientMetric& value = family.metric.emplace_back();
      value.label.push_back({label_.name, label_.value});
      if (metric.info.kind == MetricInfo::kCounter) {
        family.type = prometheus::MetricType::Counter;
        value.counter.value = metric.value;
      } else {
        family.type = prometheus::MetricType::Gauge;
        value.gauge.value = metric.value;
      }
    }
    return families;
  }

 private:
  const Label label_;
  const Source source_;
};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(std::string_view address,
                                                                        Label label,
                                                                        Source source) {
  PANDO_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  std::unique_ptr<prometheus::Exposer> exposer;
  CivetCallbacks callbacks;  // copied
  callbacks.begin_request = RefuseBody;
  try {  // the only way in which it says that it could not listen
    exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", ToString(parsed), "num_threads", kThreads,
                                 "request_timeout_ms", kRequestTimeoutMs, "keep_alive_timeout_ms",
                                 kRequestTimeoutMs},
        &callbacks);
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat("metrics: cannot listen on ", ToString(parsed), " (", e.what(),
                     "): is the port taken, or the address none of this host?"));
  }
  auto collector = std::make_shared<Collector>(std::move(label), std::move(source));
  exposer->RegisterCollectable(collector);
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(std::move(exposer), std::move(collector)));
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<prometheus::Exposer> exposer,
                                 std::shared_ptr<Collector> collector)
    : exposer_(std::move(exposer)), collector_(std::move(collector)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

int MetricsEndpoint::port() const { return exposer_->GetListeningPorts().front(); }

absl::StatusOr<std::string> AddressWithOffset(std::string_view address, int offset) {
  PANDO_ASSIGN_OR_RETURN(Address parsed, ParseAddress(address));
  if (parsed.port != 0) parsed.port += offset;
  if (parsed.port > kPortMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: there is no port ", parsed.port, "; begin with a lower one"));
  }
  return ToString(parsed);
}

}  // namespace pando
