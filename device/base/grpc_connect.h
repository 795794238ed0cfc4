// How the POD's processes reach each other by gRPC: the one place that makes channels and
// credentials, with TLS and without.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "device/base/tls.h"

namespace vpod::base {

// Whom a channel leads to; a controller proves its host's name, an agent that it is one.
enum class Peer { kController, kAgent };

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, Peer peer,
                                       const std::optional<Tls>& tls,
                                       grpc::ChannelArguments arguments = {});

// With TLS, only clients with a certificate of the POD's authority are let in.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const std::optional<Tls>& tls);

// What seems to be wrong with the TLS settings when a call failed as UNAVAILABLE with `message`: a
// sentence with a blank before it, or nothing.
std::string TlsHint(const std::optional<Tls>& tls, absl::string_view message);

}  // namespace vpod::base
