// Inside of popdist: the instances that take part in a collective, and the agreement on what it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/popdist/backend_plugin.hpp"

namespace popdist {

// Members of a communicator by rank; the first is the root of what travels.
struct Communicator {
  Backend& backend;
  std::vector<uint32_t> members;
  uint32_t rank = 0;  // of this instance

  uint32_t size() const { return static_cast<uint32_t>(members.size()); }
  bool IsRoot() const { return rank == 0; }
};

// The one registered for `id`, else the default one. popdist_error: the backend is not initialised,
// or this instance is no member.
Communicator FindCommunicator(const std::string& id);
// All instances of the job.
Communicator EveryInstance();

// Kinds of calls that all members have to make alike.
enum class Operation : uint32_t { kBroadcast, kAllReduceSum, kAllGather, kRegister, kRun };

// Description of a call, which all members compare.
struct Call {
  Operation operation;
  uint32_t type = 0;
  uint64_t count = 0;
  uint32_t root = 0;
  std::string id;
};

// Tag of the messages of a call: collectives of different ids travel under different tags, so that
// their order may differ between instances.
uint32_t TagOf(const Call& call);

// Waits until all members have made the call; false when they differ. The same on all members.
bool Agree(const Communicator& communicator, const Call& call);

uint64_t Fingerprint(const void* data, size_t bytes);

}  // namespace popdist
