// Makes a server hang while a gate is closed (fault AGENT_HANG): whatever arrives or is about to be
// sent waits at the gate, in every service at once.
#pragma once

#include <grpcpp/server_builder.h>

#include "server/agent/hang_gate.h"
#include "server/rpc/bounded_listener.h"

namespace vpod::rpc {

// For the server that is built; the gate outlives it and must be opened for ever before it is shut
// down. The call that closes the gate is still answered.
void HoldCallsAt(agent::HangGate& gate, grpc::ServerBuilder& builder,
                 BoundedListener* listener = nullptr);

}  // namespace vpod::rpc
