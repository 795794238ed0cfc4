// Common parts of the exporters of both daemons.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/metrics.h"
#include "server/http/server.h"

namespace vpod::http {

// Answers /metrics with what `write` yields, in the format that the client wants.
Handler MetricsHandler(std::function<std::string(Format)> write);
// Whether the daemon answers its clients; an error says what does not.
using Health = std::function<absl::Status()>;
// Answers /healthz: 200 and "ok", or 503 and the reason.
Handler HealthHandler(Health health);

// Serves on `address` (host:port). When that is empty, on `preferred`, or on a free port of its
// host should it be taken: several PODs run side by side on one host, and none fails for want of a
// port that nobody asked for.
absl::StatusOr<std::unique_ptr<Server>> StartExporter(const std::string& address,
                                                      const std::string& preferred, Routes routes);

}  // namespace vpod::http
