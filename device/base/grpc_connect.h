// How the POD's processes reach each other by gRPC: the one place that makes channels and
// credentials, with TLS and without.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "device/base/tls.h"

namespace vpod::base {

// The server at the end of a channel: a controller proves its host's name, an agent that it is one.
// A process that calls itself knows that already.
enum class Peer { kController, kAgent, kSelf };

// FailedPrecondition in a process that was forked from one that has called Connect: gRPC's threads
// are not there, and its descriptors are those of the parent, whose calls would be disturbed.
absl::Status CheckMayConnect();

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, Peer peer,
                                       const std::optional<Tls>& tls,
                                       grpc::ChannelArguments arguments = {});

// Call this before using gRPC's callback API. gRPC 1.51 ends its callback threads with the last
// channel that used them, and the thread that drops that channel joins them: a callback that does
// so joins itself, and the process aborts. After this call they last as long as the process.
// It also keeps one of them awake: after a second without an event each sleeps for 100 ms
// (completion_queue_cc.cc), in which an answer would lie unread if both did.
void KeepCallbackThreads();

// Sets what gRPC does in the whole process, before it is used; Connect does so. gRPC writes nothing
// to stderr unless GRPC_VERBOSITY is set, since calls report failed handshakes as well. Its mutexes
// are not searched for deadlocks: Debian builds Abseil with that search, for which all threads of a
// process share one graph.
void PrepareGrpc();

}  // namespace vpod::base
