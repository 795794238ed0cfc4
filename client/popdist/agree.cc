#include <cstring>

#include "client/popdist/communicator.h"

namespace popdist {
namespace {

// A Call as it travels.
struct Header {
  uint32_t operation, type;
  uint64_t count;
  uint64_t id;  // its fingerprint
  uint32_t root, size;
};

// Instances that register or run different things have to meet, too, so that they learn of it.
constexpr uint32_t kRegisterTag = 0, kRunTag = 1, kFirstIdTag = 2;

}  // namespace

uint64_t Fingerprint(const void* data, size_t bytes) {
  uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
  return hash;
}

uint32_t TagOf(const Call& call) {
  if (call.operation == Operation::kRegister) return kRegisterTag;
  if (call.operation == Operation::kRun) return kRunTag;
  const uint64_t hash = Fingerprint(call.id.data(), call.id.size());
  return kFirstIdTag + static_cast<uint32_t>(hash % (Backend::kNumTags - kFirstIdTag));
}

bool Agree(const Communicator& communicator, const Call& call) {
  Backend& backend = communicator.backend;
  const uint32_t tag = TagOf(call), root = communicator.members[0];
  const Header ours{static_cast<uint32_t>(call.operation),       call.type, call.count,
                    Fingerprint(call.id.data(), call.id.size()), call.root, communicator.size()};
  char equal = 1;
  if (!communicator.IsRoot()) {
    backend.send(&ours, sizeof(ours), root, tag);
    backend.receive(&equal, 1, root, tag);
    return equal != 0;
  }
  for (uint32_t rank = 1; rank < communicator.size(); ++rank) {
    Header theirs{};
    backend.receive(&theirs, sizeof(theirs), communicator.members[rank], tag);
    if (std::memcmp(&theirs, &ours, sizeof(ours)) != 0) equal = 0;
  }
  for (uint32_t rank = 1; rank < communicator.size(); ++rank)
    backend.send(&equal, 1, communicator.members[rank], tag);
  return equal != 0;
}

}  // namespace popdist
