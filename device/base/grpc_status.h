// absl::Status and grpc::Status: the codes are the same numbers.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace vpod::base {

// A status travels as metadata, of which gRPC takes 8 KiB: more ends the whole connection, with all
// its calls. A byte may travel as three.
inline constexpr size_t kMaxStatusBytes = 2048;

// Cuts a longer message to its beginning, in whole UTF-8 characters.
inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::string_view text = status.message();
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  if (text.size() <= kMaxStatusBytes) return grpc::Status(code, std::string(text));
  size_t end = kMaxStatusBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return grpc::Status(code, absl::StrCat(text.substr(0, end), "… (", text.size(), " bytes)"));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace vpod::base
