#include "client/popdist/backend.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/popdist/communicator.h"
#include "client/popdist/context.hpp"
#include "client/popdist/mpi_backend.h"

namespace popdist {
namespace {

enum class State { kNone, kRegistered, kInitialized, kFinalized };

struct Registry {
  State state = State::kNone;
  Backend* backend = nullptr;
  std::map<std::string, std::vector<uint32_t>> communicators;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

void RequireState(State state, const char* otherwise) {
  if (TheRegistry().state != state) throw popdist_error(otherwise);
}

void Register(Backend* backend) {
  TheRegistry().backend = backend;
  TheRegistry().state = State::kRegistered;
}

constexpr char kRegisteredAlready[] = "the communication backend is registered already";
constexpr char kNotInitialized[] = "the communication backend is not initialised";

}  // namespace

void registerDefaultBackend() {
  RequireState(State::kNone, kRegisteredAlready);
  Register(MpiBackend());
}

void registerBackend(const std::string& path) {
  RequireState(State::kNone, kRegisteredAlready);
  // Stays loaded for the life of the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw popdist_error(absl::StrCat("cannot load communication backend: ", dlerror()));
  const auto factory = reinterpret_cast<BackendFactory>(dlsym(library, "popdist_backend_v1"));
  if (factory == nullptr) {
    throw popdist_error(absl::StrCat(
        path, " is not a communication backend: it does not export popdist_backend_v1"));
  }
  Register(factory());
}

void initializeBackend() {
  RequireState(State::kRegistered,
               "register the communication backend once before initialising it");
  TheRegistry().backend->initialize();
  TheRegistry().state = State::kInitialized;
}

bool isBackendInitialized() { return TheRegistry().state == State::kInitialized; }

void finalizeBackend() {
  RequireState(State::kInitialized, kNotInitialized);
  TheRegistry().state = State::kFinalized;
  TheRegistry().backend->finalize();
}

void registerCommunicator(const std::set<uint32_t>& participants, const std::string& id) {
  const Communicator all = EveryInstance();
  const std::vector<uint32_t> members(participants.begin(), participants.end());
  const uint64_t fingerprint = Fingerprint(members.data(), members.size() * sizeof(members[0]));
  if (!Agree(all, {Operation::kRegister, 0, fingerprint, 0, id})) {
    throw popdist_error(
        absl::StrCat("registerCommunicator '", id, "' differs between the instances"));
  }
  if (members.empty() || members.back() >= all.size()) {
    throw popdist_error(
        absl::StrCat("communicator '", id, "' needs instances from 0 to ", all.size() - 1));
  }
  TheRegistry().communicators[id] = members;
}

Communicator EveryInstance() {
  RequireState(State::kInitialized, kNotInitialized);
  Backend& backend = *TheRegistry().backend;
  Communicator all{backend, std::vector<uint32_t>(backend.numInstances()), backend.instanceIndex()};
  for (uint32_t i = 0; i < all.size(); ++i) all.members[i] = i;
  return all;
}

Communicator FindCommunicator(const std::string& id) {
  Communicator found = EveryInstance();
  const auto& communicators = TheRegistry().communicators;
  auto it = communicators.find(id);
  if (it == communicators.end()) it = communicators.find(defaultCommunicatorId());
  if (it == communicators.end()) return found;
  const auto place = std::find(it->second.begin(), it->second.end(), found.rank);
  if (place == it->second.end()) {
    throw popdist_error(absl::StrCat("collective '", id, "': instance ", found.rank,
                                     " is not in its communicator"));
  }
  found.members = it->second;
  found.rank = static_cast<uint32_t>(place - it->second.begin());
  return found;
}

}  // namespace popdist
