// Refused requests in a daemon's log: what was asked for, by whom, and why it was refused.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vpod::rpc {

// Writes `refused call="remove partition" user="bob" … code=NOT_FOUND reason="…"`. `caller` is
// fields of the line. The same refusal is written once a minute at most, so that a client that
// repeats itself does not fill the log. Thread-safe.
void LogRefusal(absl::string_view call, absl::string_view caller, const absl::Status& status);

// "remove partition" of "/vipuuser.VipuUser/RemovePartition"; the path of a call without a rule,
// which a client may have made up, without quotes.
std::string WordsOf(absl::string_view path);

// Calls that a server refuses, with the user whom they name. Calls that their client cancels are
// not refused.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> LogRefusedCalls();

}  // namespace vpod::rpc
