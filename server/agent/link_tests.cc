// Tests of single links: data leave memory here through a port and are looked at where they arrive.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/base/pattern.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "server/agent/admission.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

constexpr absl::string_view kSwitch = "switch";
constexpr std::chrono::seconds kSendPatience{2};

// Returns the bytes that a test sends; the far end of a cable names itself without any.
size_t BytesOf(vipuagent::LinkTest test) {
  if (test == vipuagent::CABLING) return 0;
  return test == vipuagent::TRAFFIC ? 4 << 10 : 32;  // a page or a token
}

absl::Span<std::byte> BytesIn(const shm::Segment& memory) { return {memory.data(), memory.size()}; }

std::string DigestOf(const shm::Segment& memory) {
  return base::Sha256Hex({reinterpret_cast<const char*>(memory.data()), memory.size()});
}

double LinkSeconds(uint32_t port, uint64_t bytes) {
  const double rate = arch::KindOfPort(port) == arch::LinkKind::kGwLink
                          ? arch::kGwPortBytesPerSecond
                          : arch::kLinkBytesPerSecond;
  return static_cast<double>(bytes) / rate;
}

}  // namespace

absl::StatusOr<vipuagent::AnswerLinkReply> Agent::AnswerLink(
    const vipuagent::AnswerLinkRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t machine, FindMachine(request.host()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, arch::FindPort(request.link()));
  machine::Links& links = machines_[machine]->links();
  vipuagent::AnswerLinkReply reply;
  if (!request.arrival().empty()) {
    VPOD_ASSIGN_OR_RETURN(const auto memory, arrivals_.Take(request.arrival()));
    if (links.Receive(port, BytesIn(*memory))) reply.set_digest(DigestOf(*memory));
    return reply;
  }
  const machine::LinkReading reading = links.Read(port);
  const uint32_t answering = reading.fault.swapped ? arch::SwappedPort(port) : port;
  reply.set_peer(absl::StrCat(request.host(), " ", arch::PortName(answering)));
  reply.set_lanes(reading.lanes());
  if (request.bytes() > 0 && reply.lanes() > 0) {
    VPOD_ASSIGN_OR_RETURN(*reply.mutable_arrival(), arrivals_.Expect(request.bytes()));
  }
  return reply;
}

absl::StatusOr<vipuagent::AnswerLinkReply> Agent::AskFarEnd(
    const vipuagent::TestLinkRequest& request, const vipuagent::AnswerLinkRequest& question) {
  if (machine_by_host_.contains(question.host())) return AnswerLink(question);
  if (question.host() == kSwitch) {
    if (request.test() == vipuagent::TRAFFIC)
      return absl::InvalidArgumentError("a switch keeps no data, name the machine behind it");
    // It trains with whatever is plugged in.
    vipuagent::AnswerLinkReply reply;
    reply.set_peer(absl::StrCat(question.host(), " ", question.link()));
    reply.set_lanes(arch::kLanesPerLink);
    return reply;
  }
  if (ask_far_end == nullptr || request.peer_endpoint().empty())
    return absl::UnavailableError("it is on no agent that is known");
  return ask_far_end(request.peer_endpoint(), question);
}

absl::Status Agent::SendArrival(const std::string& arrival, const std::string& endpoint,
                                const std::shared_ptr<shm::Segment>& data) {
  if (endpoint.empty()) {
    const fabric::Landing landing = arrivals_.Land(arrival, data->size());
    if (landing.buffer == nullptr) return absl::UnavailableError("the far end did not expect data");
    std::memcpy(landing.buffer, data->data(), data->size());
    landing.landed(absl::OkStatus());
    return absl::OkStatus();
  }
  if (calls_ == nullptr) return absl::UnavailableError("this agent cannot reach other agents");
  // It may need the data, and report, when nobody waits any more.
  struct Outcome {
    base::Mutex mutex;
    std::condition_variable changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  };
  const auto outcome = std::make_shared<Outcome>();
  calls_->Send(endpoint, arrival, BytesIn(*data), [outcome, data](absl::Status status) {
    base::MutexLock lock(outcome->mutex);
    outcome->status = std::move(status);
    outcome->changed.notify_all();
  });
  base::MutexLock lock(outcome->mutex);
  if (!lock.WaitUntil(outcome->changed, std::chrono::steady_clock::now() + kSendPatience,
                      [&] { return outcome->status.has_value(); })) {
    return absl::DeadlineExceededError("it takes no data");
  }
  return *outcome->status;
}

absl::StatusOr<bool> Agent::Transfer(const vipuagent::TestLinkRequest& request,
                                     vipuagent::AnswerLinkRequest question,
                                     const vipuagent::AnswerLinkReply& answer) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t machine, FindMachine(request.host()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, arch::FindPort(request.link()));
  VPOD_ASSIGN_OR_RETURN(shm::Segment memory, shm::Segment::Create(question.bytes()));
  const auto data = std::make_shared<shm::Segment>(std::move(memory));
  base::FillPattern(BytesIn(*data), std::hash<std::string>{}(request.host() + request.link()));
  const std::string digest = DigestOf(*data);
  if (!machines_[machine]->links().Send(port, BytesIn(*data))) return false;
  if (question.host() == kSwitch) return DigestOf(*data) == digest;
  const bool here = machine_by_host_.contains(question.host());
  if (options_.require_encrypted_fabric && !options_.encrypted_fabric && !here &&
      !StaysOnHost(request.peer_endpoint(), endpoint_)) {
    return absl::FailedPreconditionError(
        "it would go to another host in clear; this agent runs with --require-encrypted-fabric");
  }
  VPOD_RETURN_IF_ERROR(SendArrival(answer.arrival(), here ? "" : request.peer_endpoint(), data));
  question.clear_bytes();
  question.set_arrival(answer.arrival());
  VPOD_ASSIGN_OR_RETURN(const auto arrived, AskFarEnd(request, question));
  return arrived.digest() == digest;
}

absl::StatusOr<vipuagent::TestLinkReply> Agent::TestLink(
    const vipuagent::TestLinkRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t index, FindMachine(request.host()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, arch::FindPort(request.link()));
  const std::pair<std::string, std::string> peer = absl::StrSplit(request.expected_peer(), ' ');
  const machine::LinkReading reading = machines_[index]->links().Read(port);
  vipuagent::TestLinkReply reply;
  const auto fail = [&](auto... parts) {
    reply.set_reason(absl::StrCat(parts...));
    return reply;
  };
  if (reading.fault.down) return fail("no signal, the link is down");
  vipuagent::AnswerLinkRequest question;
  question.set_test(request.test());
  question.set_host(peer.first);
  question.set_link(peer.second);
  question.set_bytes(BytesOf(request.test()));
  if (reading.fault.swapped) {
    // The neighbouring socket's cable leads to the neighbour of the port that should answer.
    const auto expected = arch::FindPort(peer.second);
    question.set_link(expected.ok() ? arch::PortName(arch::SwappedPort(*expected))
                                    : "another port");
  }
  const auto answer = AskFarEnd(request, question);
  if (!answer.ok())
    return fail("no answer from ", request.expected_peer(), ": ", answer.status().message());
  if (answer->lanes() == 0) return fail("no signal, ", request.expected_peer(), " is down");
  if (answer->peer() != request.expected_peer())
    return fail("leads to ", answer->peer(), " instead of ", request.expected_peer());
  const uint32_t lanes = std::min(reading.lanes(), answer->lanes());
  if (request.test() == vipuagent::TRAINING && lanes < arch::kLanesPerLink)
    return fail("trained with ", lanes, " of ", arch::kLanesPerLink, " lanes");
  if (request.test() == vipuagent::SYNC && lanes < arch::kLanesPerLink)
    return fail("toggles are lost");
  if (question.bytes() > 0) {
    const auto intact = Transfer(request, question, *answer);
    if (!intact.ok()) {
      return fail("data sent to ", request.expected_peer(),
                  " did not arrive: ", intact.status().message());
    }
    if (!*intact) return fail("data arrived changed at ", request.expected_peer());
    reply.set_bytes_moved(question.bytes());
    reply.set_modelled_seconds(LinkSeconds(port, question.bytes()));
  }
  reply.set_passed(true);
  return reply;
}

}  // namespace vpod::agent
