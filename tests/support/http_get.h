// Reads pages of daemons' HTTP end-points, without help that would hide what they send.
#pragma once

#include <string>

#include "device/base/unique_fd.h"

namespace vpod::testing {

// A TCP connection to host:port (IPv4), or a socket that is not connected if nobody listens there.
base::UniqueFd ConnectSocket(const std::string& endpoint);

// Everything until the other end closes, or the socket has waited as long as it may.
std::string ReadAll(const base::UniqueFd& fd);

// The whole answer to a GET of http://host:port/path, headers included; empty if nobody answers.
std::string HttpGet(const std::string& url, const std::string& accept = "*/*");

}  // namespace vpod::testing
