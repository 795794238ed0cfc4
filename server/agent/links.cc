// Links as users see them: counters of what programs move, telemetry, and tests of single links.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

constexpr size_t kPatternBytes = 16 << 10;
constexpr absl::string_view kSwitch = "switch";

// Bytes that differ from link to link and from place to place (xorshift).
std::string Pattern(const std::string& seed) {
  uint64_t state = 0x9e3779b97f4a7c15;
  for (char c : seed) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string pattern(kPatternBytes, '\0');
  for (size_t at = 0; at < kPatternBytes; at += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(pattern.data() + at, &state, sizeof(state));
  }
  return pattern;
}

// "NLC_E_0A" of IPU 3, from "IPU3.NLC_E_0A".
std::string ShortName(uint32_t port) {
  const std::string name = arch::PortName(port);
  return name.substr(name.find('.') + 1);
}

double LinkSeconds(uint32_t port, uint64_t bytes) {
  const double rate = arch::KindOfPort(port) == arch::LinkKind::kGwLink
                          ? arch::kGwPortBytesPerSecond
                          : arch::kLinkBytesPerSecond;
  return static_cast<double>(bytes) / rate;
}

}  // namespace

std::vector<std::vector<MachineTraffic>> Agent::TrafficOfLease(
    const Lease& lease, const program::Executable& executable) {
  std::shared_ptr<const Wiring> wiring;
  uint32_t first_ipu = 0;  // of the lease, among the partition's
  {
    base::MutexLock lock(mutex_);
    const auto it = partitions_.find(lease.open.partition_id());
    if (it == partitions_.end() || it->second->wiring == nullptr) return {};
    wiring = it->second->wiring;
    const auto& gcds = it->second->gcds;
    const uint32_t gcd = lease.open.gcd_id();
    for (uint32_t i = 0; i < gcd; ++i) first_ipu += static_cast<uint32_t>(gcds[i].size());
    const auto range =
        arch::IpusOfDevice(static_cast<uint32_t>(gcds[gcd].size()), lease.open.device_id());
    if (!range.ok()) return {};
    first_ipu += range->first;
  }
  std::vector<bool> is_here;
  for (const std::string& host : wiring->hosts())
    is_here.push_back(machine_by_host_.contains(host));
  const ipuof::v1::JobMember& job = lease.open.job();
  const uint32_t ipus = executable.ipus_per_replica();
  std::vector<std::vector<MachineTraffic>> programs;
  for (uint32_t program = 0; program < static_cast<uint32_t>(executable.proto().programs_size());
       ++program) {
    programs.push_back(TrafficOf(*wiring, FlowsOf(executable, program, job),
                                 job.replica_offset() * ipus, job.local_replicas() * ipus,
                                 first_ipu, is_here));
    for (MachineTraffic& traffic : programs.back())
      traffic.machine =
          static_cast<uint32_t>(machine_by_host_.find(wiring->hosts()[traffic.machine])->second);
  }
  return programs;
}

void Agent::CountTraffic(const Loaded& loaded, uint32_t program) {
  if (program >= loaded.traffic.size()) return;
  for (const MachineTraffic& traffic : loaded.traffic[program])
    machines_[traffic.machine]->links().Count(traffic.ports);
}

telemetry::v1::LinkTelemetry Agent::DescribeLink(const Wiring& wiring,
                                                 const arch::Link& link) const {
  const auto machine_of = [&](const arch::LinkEnd& end) -> machine::Machine* {
    if (end.machine == arch::LinkEnd::kSwitch) return nullptr;
    const auto it = machine_by_host_.find(wiring.hosts()[end.machine]);
    return it == machine_by_host_.end() ? nullptr : machines_[it->second].get();
  };
  machine::LinkReading worse = machine_of(link.near)->links().Read(link.near.port);
  telemetry::v1::LinkTelemetry result;
  result.set_tx_bytes(worse.counters.tx_bytes);
  result.set_rx_bytes(worse.counters.rx_bytes);
  result.set_correctable_errors(worse.counters.correctable_errors);
  result.set_uncorrectable_errors(worse.counters.uncorrectable_errors);
  // A link is as good as the worse of its ends, as far as we can see.
  if (machine::Machine* far = machine_of(link.far)) {
    const machine::LinkReading other = far->links().Read(link.far.port);
    if (other.lanes() < worse.lanes()) worse = other;
  }
  const bool is_ipu_link = link.kind == arch::LinkKind::kIpuLink;
  result.set_host(wiring.hosts()[link.near.machine]);
  if (is_ipu_link) result.set_pcie_id(arch::IpuOfPort(link.near.port));
  result.set_name(ShortName(link.near.port));
  if (link.far.machine == arch::LinkEnd::kSwitch) {
    result.set_peer_name(absl::StrCat(kSwitch, " port ", link.far.port));
  } else {
    result.set_peer_host(wiring.hosts()[link.far.machine]);
    if (is_ipu_link) result.set_peer_pcie_id(arch::IpuOfPort(link.far.port));
    result.set_peer_name(ShortName(link.far.port));
  }
  result.set_kind(std::string(arch::LinkKindName(link.kind)));
  result.set_state(std::string(worse.state()));
  if (is_ipu_link) {
    result.set_gen(4);
    result.set_lanes(worse.lanes());
  }
  return result;
}

absl::StatusOr<telemetry::v1::GetPartitionLinksReply> Agent::GetLinks(
    absl::string_view partition_id) {
  std::shared_ptr<const Wiring> wiring;
  {
    base::MutexLock lock(mutex_);
    const auto it = partitions_.find(std::string(partition_id));
    if (it == partitions_.end()) {
      return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
    }
    wiring = it->second->wiring;
  }
  telemetry::v1::GetPartitionLinksReply reply;
  if (wiring == nullptr) return reply;
  for (uint32_t machine = 0; machine < wiring->shape().machines; ++machine) {
    if (!machine_by_host_.contains(wiring->hosts()[machine])) continue;
    for (const arch::Link& link : wiring->LinksOf(machine))
      *reply.add_links() = DescribeLink(*wiring, link);
  }
  return reply;
}

absl::StatusOr<vipuagent::AnswerLinkReply> Agent::AnswerLink(
    const vipuagent::AnswerLinkRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t machine, FindMachine(request.host()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, arch::FindPort(request.link()));
  machine::Links& links = machines_[machine]->links();
  const machine::LinkReading reading = links.Read(port);
  const uint32_t answering = reading.fault.swapped ? arch::SwappedPort(port) : port;
  vipuagent::AnswerLinkReply reply;
  reply.set_peer(absl::StrCat(request.host(), " ", arch::PortName(answering)));
  reply.set_lanes(reading.lanes());
  if (request.test() == vipuagent::TRAFFIC && reply.lanes() > 0) {
    const uint64_t bytes = request.pattern().size();
    reply.set_pattern(request.pattern());
    links.Count({{answering, bytes, bytes}});
  }
  return reply;
}

absl::StatusOr<vipuagent::AnswerLinkReply> Agent::AskFarEnd(
    const vipuagent::TestLinkRequest& request, vipuagent::AnswerLinkRequest question) {
  if (machine_by_host_.contains(question.host())) return AnswerLink(question);
  if (question.host() == kSwitch) {
    if (question.test() == vipuagent::TRAFFIC)
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

absl::StatusOr<vipuagent::TestLinkReply> Agent::TestLink(
    const vipuagent::TestLinkRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t index, FindMachine(request.host()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, arch::FindPort(request.link()));
  const std::pair<std::string, std::string> peer = absl::StrSplit(request.expected_peer(), ' ');
  machine::Links& links = machines_[index]->links();
  const machine::LinkReading reading = links.Read(port);
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
  if (reading.fault.swapped) {
    // The neighbouring socket's cable leads to the neighbour of the port that should answer.
    const auto expected = arch::FindPort(peer.second);
    question.set_link(expected.ok() ? arch::PortName(arch::SwappedPort(*expected))
                                    : "another port");
  }
  const bool moves_data = request.test() == vipuagent::TRAFFIC;
  if (moves_data) question.set_pattern(Pattern(request.host() + request.link()));
  const auto answer = AskFarEnd(request, question);
  if (!answer.ok()) {
    return fail("no answer from ", request.expected_peer(), ": ", answer.status().message());
  }
  if (answer->lanes() == 0) return fail("no signal, ", request.expected_peer(), " is down");
  if (answer->peer() != request.expected_peer())
    return fail("leads to ", answer->peer(), " instead of ", request.expected_peer());
  const uint32_t lanes = std::min(reading.lanes(), answer->lanes());
  if (request.test() == vipuagent::TRAINING && lanes < arch::kLanesPerLink)
    return fail("trained with ", lanes, " of ", arch::kLanesPerLink, " lanes");
  if (request.test() == vipuagent::SYNC && lanes < arch::kLanesPerLink)
    return fail("toggles are lost");
  if (moves_data) {
    const uint64_t bytes = question.pattern().size();
    links.Count({{port, bytes, bytes}});
    if (answer->pattern() != question.pattern()) return fail("data came back changed");
    reply.set_bytes_moved(2 * bytes);
    reply.set_modelled_seconds(LinkSeconds(port, bytes));
  }
  reply.set_passed(true);
  return reply;
}

}  // namespace vpod::agent
