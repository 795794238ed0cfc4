// Certificates of a POD: an authority of its own, one certificate for its daemons, one for its
// users (spec/vipu.md 3).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vpod::security {

// Writes {ca.crt, server.crt, server.key} into <directory>/server and {ca.crt, client.crt,
// client.key} into <directory>/client; keys with mode 0600. The authority's own key is not kept.
// The server's certificate names this host, its addresses, `more_hosts` (names or addresses) and
// base::kAgentName; it also serves as the client certificate of agents. AlreadyExists when there is
// anything in one of the two directories: nothing is overwritten. InvalidArgument names a host that
// is neither a name nor an address.
absl::Status GenerateCertificates(const std::string& directory,
                                  const std::vector<std::string>& more_hosts);

// Returns the error that GenerateCertificates would return for its arguments, without writing.
absl::Status CheckCanGenerate(const std::string& directory,
                              const std::vector<std::string>& more_hosts);

}  // namespace vpod::security
