// The communication backend between instances: Open MPI. Register, initialise, finalise, once each
// and in this order; any other order throws popdist_error.
#pragma once

namespace popdist {

void registerDefaultBackend();
void initializeBackend();
bool isBackendInitialized();
// Only at a clean exit: after a failure leave it out, because MPI_Finalize waits for the others.
void finalizeBackend();
constexpr const char* defaultCommunicatorId() { return "default"; }

}  // namespace popdist
