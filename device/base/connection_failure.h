// Why a server of the POD was not reached, or did not begin a call, in words for people: gRPC's own
// are for programmers.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "device/base/tls.h"

namespace vpod::base {

// Whether a call ended because its server was not reached, or did not answer in time.
bool IsConnectionFailure(const grpc::Status& status);

// What ConnectionFailure says of a server that does not answer in time.
inline constexpr char kSilence[] = "it does not answer";

// Returns why, after such a call to host:port: a phrase such as "nobody listens there", without a
// stop. It tells apart that nobody listens, that the name is unknown, that another kind of server
// listens, that the certificates do not fit, and that the server does not answer. If the peer
// closed the connection, the function looks for it, for two seconds at most.
std::string ConnectionFailure(const std::optional<Tls>& tls, const std::string& endpoint,
                              const grpc::Status& status);

// What the controller answers to a call for which it has no thread. The call has not begun, so that
// a client may make it again.
inline constexpr char kBusy[] =
    "The controller answers as many calls as it can at the moment; try again.";
bool IsBusy(const grpc::Status& status);

// The phrase as a sentence: "Nobody listens there."
std::string AsSentence(const std::string& phrase);

}  // namespace vpod::base
