// absl::Status and grpc::Status: the codes are the same numbers.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace vpod::base {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Why there is no connection, without gRPC's own words around it: "Connection refused".
inline std::string ConnectionError(const grpc::Status& status) {
  const std::string& text = status.error_message();
  const size_t last = text.rfind(": ");
  return last == std::string::npos ? text : text.substr(last + 2);
}

}  // namespace vpod::base
