// Refused requests in a daemon's log: what was asked for, by whom, and why it was refused.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vpod::rpc {

// The name of a caller as a field of the line. It is `user="bob"` if the daemon has accepted the
// name, because a key proved it or because the daemon asks for no keys; otherwise it is
// `claimed_user="bob"`, because anybody may have given themselves that name.
std::string CallerField(absl::string_view user, bool is_accepted);

// Writes `refused call="remove partition" user="bob" … code=NOT_FOUND reason="…"`. `caller` is
// fields of the line. The same refusal is written once a minute at most, so that a client that
// repeats itself does not fill the log. Thread-safe.
void LogRefusal(absl::string_view call, absl::string_view caller, const absl::Status& status);

// "remove partition" of "/vipuuser.VipuUser/RemovePartition"; the path of a call without a rule,
// which a client may have made up, without quotes.
std::string WordsOf(absl::string_view path);

// Logs the calls that a server refuses, with the user whom they name. A call that its client
// cancels is not refused. If the server is `secure`, names are accepted in calls that need an
// access key, which the guard has tried (call_guard.h), and otherwise in all calls.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> LogRefusedCalls(bool secure);

}  // namespace vpod::rpc
