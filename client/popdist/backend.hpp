// The communication backend between instances. Register, initialise, finalise, once each and in
// this order; any other order throws popdist_error. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace popdist {

// Open MPI.
void registerDefaultBackend();
// A shared library (backend_plugin.hpp). popdist_error: it cannot be loaded, or is none.
void registerBackend(const std::string& path);
void initializeBackend();
bool isBackendInitialized();
// Only at a clean exit: after a failure leave it out, because MPI_Finalize waits for the others.
void finalizeBackend();

constexpr const char* defaultCommunicatorId() { return "default"; }

// Limits the collectives of `id` to these instances; under the default id, all collectives whose id
// has no communicator of its own. Replaces an earlier one of the id. Collective: every instance of
// the job calls it with equal arguments, members or not; popdist_error on all of them where they
// differ.
void registerCommunicator(const std::set<uint32_t>& participants,
                          const std::string& id = defaultCommunicatorId());

}  // namespace popdist
