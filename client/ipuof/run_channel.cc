#include "client/ipuof/run_channel.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "device/shm/run_messages.h"

namespace vpod::ipuof {
namespace {

bool ReceiveAll(int socket, void* data, size_t bytes) {
  return TEMP_FAILURE_RETRY(recv(socket, data, bytes, MSG_WAITALL)) == static_cast<ssize_t>(bytes);
}

}  // namespace

RunChannel::RunChannel(base::UniqueFd connection) : connection_(std::move(connection)) {
  // A run may take any time; when the agent is gone, the connection ends.
  const timeval no_limit{};
  setsockopt(connection_.get(), SOL_SOCKET, SO_RCVTIMEO, &no_limit, sizeof(no_limit));
}

bool RunChannel::Start(uint32_t program, uint32_t slot) {
  if (busy_.exchange(true)) return false;
  const shm::RunRequest request{program, slot};
  return TEMP_FAILURE_RETRY(send(connection_.get(), &request, sizeof(request), MSG_NOSIGNAL)) ==
         static_cast<ssize_t>(sizeof(request));
}

std::optional<absl::StatusOr<base::Cycles>> RunChannel::Await() {
  shm::RunAnswer answer;
  if (!ReceiveAll(connection_.get(), &answer, sizeof(answer)) ||
      answer.message_bytes > shm::kMaxRunMessageBytes)
    return std::nullopt;
  std::string message(answer.message_bytes, '\0');
  if (!message.empty() && !ReceiveAll(connection_.get(), message.data(), message.size()))
    return std::nullopt;
  busy_.store(false);
  if (answer.code == 0) return base::Cycles(answer.cycles);
  return absl::Status(static_cast<absl::StatusCode>(answer.code), message);
}

void RunChannel::ShutDown() { shutdown(connection_.get(), SHUT_RDWR); }

}  // namespace vpod::ipuof
