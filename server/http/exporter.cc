#include "server/http/exporter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/accept.h"

namespace vpod::http {

Handler MetricsHandler(std::function<std::string(Format)> write) {
  return [write = std::move(write)](const Request& request) -> Response {
    const std::optional<Format> format = ChooseFormat(request.accept);
    if (!format.has_value()) {
      return {.status = 406,
              .body = absl::StrCat("available are ", ContentType(Format::kText), " and ",
                                   ContentType(Format::kOpenMetrics), "\n")};
    }
    return {.content_type = std::string(ContentType(*format)), .body = write(*format)};
  };
}

Handler HealthHandler(Health health) {
  return [health = std::move(health)](const Request&) -> Response {
    const absl::Status status = health();
    if (status.ok()) return {.body = "ok\n"};
    return {.status = 503, .body = absl::StrCat(status.message(), "\n")};
  };
}

absl::StatusOr<std::unique_ptr<Server>> StartExporter(const std::string& address,
                                                      const std::string& preferred, Routes routes) {
  if (!address.empty()) return Server::Start(address, std::move(routes));
  auto server = Server::Start(preferred, routes);
  if (server.ok()) return server;
  return Server::Start(absl::StrCat(preferred.substr(0, preferred.rfind(':')), ":0"),
                       std::move(routes));
}

}  // namespace vpod::http
