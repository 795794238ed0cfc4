#include "server/rpc/silent_streams.h"

#include <memory>

#include "server/rpc/cancellable_call.h"

namespace vpod::rpc {

bool SilentStreams::Wait(const grpc::ServerContextBase& context,
                         const std::function<bool()>& read) {
  const auto call = std::make_shared<CancellableCall>(context);
  const uint64_t entry = waiting_.Add(1, [call] { call->Cancel(); });
  const bool is_read = read();
  waiting_.Remove(entry);
  call->End();
  return is_read;
}

void SilentStreams::EndThoseOlderThan(std::chrono::seconds patience) {
  waiting_.EvictThoseUntil(EvictionQueue::Clock::now() - patience);
}

}  // namespace vpod::rpc
