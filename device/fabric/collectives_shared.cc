// Collectives in shared memory: once all sites are there, each computes its pieces where inputs and
// outputs lie and tells the others when it is through.
#include "device/fabric/collectives_impl.h"

namespace vpod::fabric {

void Collectives::RunShared(const OperationPtr& operation) {
  if (operation->own_pieces == 0) return TellFinished(operation);
  const ReplicaGroup& group = operation->key.group;
  auto arenas = std::make_shared<std::vector<std::byte*>>(group.size);
  const Collective& collective = *operation->collective;
  for (size_t i = 0; i < collective.replicas.size(); ++i)
    (*arenas)[group.Position(collective.replicas[i])] = collective.arenas[i];
  for (size_t i = 0; i < group.size; ++i) {
    const auto mapped =
        options_.arenas.find(group.Replica(i) * options_.ipus_per_replica + operation->key.channel);
    if (mapped != options_.arenas.end()) (*arenas)[i] = mapped->second.data();
  }
  for (size_t piece = 0; piece < operation->pieces.size(); ++piece) {
    if (!operation->Owns(options_.here, piece)) continue;
    options_.compute([self = shared_from_this(), operation, piece, arenas] {
      RunPiece(*operation->collective, operation->pieces[piece], *arenas);
      if (operation->own_pieces.fetch_sub(1) == 1) self->TellFinished(operation);
    });
  }
}

void Collectives::TellFinished(const OperationPtr& operation) {
  for (size_t site : operation->sites) {
    if (site != options_.here) Tell(site, HeaderFor(*operation, kFinished));
  }
  Done(operation, absl::OkStatus());
}

void Collectives::OnFinished(const OperationPtr& operation, size_t site) {
  {
    base::MutexLock lock(mutex_);
    const bool first = operation->finished.insert(site).second;
    if (!first || !operation->here() || operation->finished.size() != operation->others()) return;
  }
  Done(operation, absl::OkStatus());
}

}  // namespace vpod::fabric
