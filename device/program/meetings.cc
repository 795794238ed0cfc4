#include "device/program/meetings.h"

#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/ops/collective.h"
#include "device/program/tensor_type.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// One communication step of an IPU.
struct Meeting {
  bool is_collective = false;
  uint32_t peer = 0;
  uint32_t channel = 0;
  bool sends = false;
  const v1::Tensor* tensor = nullptr;
};

constexpr uint64_t kMaxMeetings = 1 << 20;

absl::Status CollectMeetings(
    const v1::Ipu& ipu, const google::protobuf::RepeatedPtrField<v1::Instruction>& instructions,
    std::deque<Meeting>& meetings) {
  for (const v1::Instruction& instruction : instructions) {
    if (CollectiveOf(instruction).has_value()) {
      meetings.push_back({.is_collective = true});
    } else if (instruction.has_send()) {
      const v1::Send& op = instruction.send();
      meetings.push_back({false, op.to_ipu(), op.channel(), true, &ipu.tensors(op.tensor())});
    } else if (instruction.has_receive()) {
      const v1::Receive& op = instruction.receive();
      meetings.push_back({false, op.from_ipu(), op.channel(), false, &ipu.tensors(op.tensor())});
    } else if (instruction.has_repeat()) {
      const size_t before = meetings.size();
      VPOD_RETURN_IF_ERROR(CollectMeetings(ipu, instruction.repeat().body(), meetings));
      const std::vector<Meeting> body(meetings.begin() + before, meetings.end());
      if (body.size() * uint64_t{instruction.repeat().count()} > kMaxMeetings) {
        return Invalid(
            absl::StrCat("more than ", kMaxMeetings, " exchanges between IPUs in a run"));
      }
      if (body.empty()) continue;  // there may be 2^32 rounds
      for (uint32_t i = 1; i < instruction.repeat().count(); ++i) {
        meetings.insert(meetings.end(), body.begin(), body.end());
      }
    }
    if (meetings.size() > kMaxMeetings) {
      return Invalid(absl::StrCat("more than ", kMaxMeetings, " exchanges between IPUs in a run"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// The IPUs that take part in collectives must agree on their number and order; an IPU that holds
// nothing to reduce takes part in none.
absl::Status ValidateMeetings(const v1::Executable& executable, const v1::Program& program) {
  std::vector<std::deque<Meeting>> queues(program.blocks_size());
  for (int ipu = 0; ipu < program.blocks_size(); ++ipu) {
    VPOD_RETURN_IF_ERROR(
        CollectMeetings(executable.ipus(ipu), program.blocks(ipu).instructions(), queues[ipu]));
  }
  std::vector<std::deque<Meeting>*> collective;
  for (auto& queue : queues) {
    const auto is_collective = [](const Meeting& meeting) { return meeting.is_collective; };
    if (std::any_of(queue.begin(), queue.end(), is_collective)) collective.push_back(&queue);
  }
  bool progress = true;
  while (progress) {
    progress = false;
    for (uint32_t ipu = 0; ipu < queues.size(); ++ipu) {
      while (!queues[ipu].empty() && queues[ipu].front().sends) {
        const Meeting send = queues[ipu].front();
        std::deque<Meeting>& peer = queues[send.peer];
        if (peer.empty() || peer.front().is_collective || peer.front().sends ||
            peer.front().peer != ipu || peer.front().channel != send.channel) {
          break;
        }
        if (TypeOf(*peer.front().tensor) != TypeOf(*send.tensor)) {
          return Invalid(absl::StrCat("channel ", send.channel, " sends ",
                                      TypeOf(*send.tensor).ToString(), " but receives ",
                                      TypeOf(*peer.front().tensor).ToString()));
        }
        peer.pop_front();
        queues[ipu].pop_front();
        progress = true;
      }
    }
    bool all_at_collective = !collective.empty();
    for (const auto* queue : collective) {
      all_at_collective = all_at_collective && !queue->empty() && queue->front().is_collective;
    }
    if (all_at_collective) {
      for (auto* queue : collective) queue->pop_front();
      progress = true;
    }
  }
  for (size_t ipu = 0; ipu < queues.size(); ++ipu) {
    if (!queues[ipu].empty()) {
      return Invalid(absl::StrCat("IPU ", ipu, " waits for an exchange that no other IPU makes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
