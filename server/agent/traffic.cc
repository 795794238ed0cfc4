#include "server/agent/traffic.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "device/program/ops/collective.h"

namespace vpod::agent {
namespace {

using machine::PortBytes;

// Spreads a flow over the ports of its hops, at both ends of each.
void AddFlow(const Wiring& wiring, const std::vector<arch::Hop>& hops, uint64_t bytes,
             std::map<arch::LinkEnd, PortBytes>& ports) {
  for (const arch::Hop& hop : hops) {
    for (uint32_t i = 0; i < hop.num_ports; ++i) {
      const uint64_t share = bytes / hop.num_ports + (i < bytes % hop.num_ports ? 1 : 0);
      const arch::LinkEnd near{hop.machine, hop.first_port + i};
      ports[near].tx += share;
      const auto far = arch::PeerOf(wiring.shape(), near);
      if (far.has_value() && far->machine != arch::LinkEnd::kSwitch) ports[*far].rx += share;
    }
  }
}

// Collectives of a kind in groups of a shape, and the bytes of their larger sides on each replica.
struct Exchange {
  program::Collective op;  // one of them
  uint64_t bytes = 0;
};

// Returns the bytes from a replica to each `known` member of its group that it sends to: along both
// directions of a ring, or in an all-to-all to each its part.
std::vector<std::pair<uint32_t, uint64_t>> SentTo(const Exchange& exchange,
                                                  const program::GroupMembers& group,
                                                  uint32_t replica, const Replicas& known) {
  using program::v1::Instruction;
  const uint32_t size = group.size, position = (replica - group.first) / group.stride;
  const uint64_t each = exchange.bytes / size;
  if (size == 1 || each == 0) return {};
  std::vector<std::pair<uint32_t, uint64_t>> sent;
  if (exchange.op.kind == Instruction::kAllToAll) {
    const auto members_below = [&](uint32_t end) {
      if (end <= group.first) return 0u;
      return std::min(size, (end - group.first - 1) / group.stride + 1);
    };
    for (uint32_t to = members_below(known.first); to < members_below(known.end); ++to) {
      if (to != position) sent.emplace_back(group.first + to * group.stride, each);
    }
    return sent;
  }
  // An all-reduce passes twice.
  const uint64_t passes = exchange.op.kind == Instruction::kAllReduce ? 2 : 1;
  for (uint32_t ahead : {1u, size - 1}) {
    sent.emplace_back(group.first + (position + ahead) % size * group.stride,
                      passes * each * (size - 1) / 2);
  }
  return sent;
}

}  // namespace

std::vector<Flow> FlowsOf(const program::Executable& executable, uint32_t program,
                          const ipuof::v1::JobMember& job, const Replicas& known) {
  const uint32_t ipus = executable.ipus_per_replica(), replicas = job.total_replicas();
  const uint32_t first = job.replica_offset(), end = first + job.local_replicas();
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> flows;
  const auto is_ours = [&](uint32_t replica) { return replica >= first && replica < end; };
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    const auto bytes_of = [&](uint32_t tensor) {
      return program::TypeOf(
                 executable.proto().ipus(static_cast<int>(ipu)).tensors(static_cast<int>(tensor)))
          .bytes();
    };
    std::map<uint32_t, uint64_t> sent;  // by receiving IPU
    // By kind and groups: there may be as many collectives as instructions.
    std::map<std::tuple<int, int, uint32_t>, Exchange> exchanges;
    // Moves of each exchange, once: it may have many of them and be executed at many places.
    std::map<uint32_t, uint64_t> exchanged;
    program::ForEachInstruction(
        executable.proto().ipus(static_cast<int>(ipu)), executable.EntryOf(program, ipu),
        [&](const program::v1::Instruction& instruction, uint64_t times) {
          if (instruction.has_exchange()) exchanged[instruction.exchange().exchange()] += times;
          const auto op = program::CollectiveOf(instruction);
          if (!op.has_value() || replicas == 0) return;
          uint64_t bytes = 0;
          for (uint32_t tensor : op->carried()) bytes += times * bytes_of(tensor);
          Exchange& exchange = exchanges[{op->kind, op->group->kind(), op->group->size()}];
          exchange.op = *op;
          exchange.bytes += bytes;
        });
    for (const auto& [index, times] : exchanged) {
      for (const auto& move : executable.proto().exchanges(static_cast<int>(index)).moves()) {
        if (move.from_ipu() == ipu) sent[move.to_ipu()] += times * bytes_of(move.from_tensor());
      }
    }
    for (uint32_t replica = first; replica < end; ++replica) {
      for (const auto& [to, bytes] : sent)
        flows[{replica * ipus + ipu, replica * ipus + to}] += bytes;
      for (const auto& [kind, exchange] : exchanges) {
        const auto group = program::MembersOf(*exchange.op.group, replicas, replica);
        for (const auto& [other, bytes] : SentTo(exchange, group, replica, known)) {
          flows[{replica * ipus + ipu, other * ipus + ipu}] += bytes;
          if (!is_ours(other)) flows[{other * ipus + ipu, replica * ipus + ipu}] += bytes;
        }
      }
    }
  }
  std::vector<Flow> result;
  for (const auto& [ends, bytes] : flows) result.push_back({ends.first, ends.second, bytes});
  return result;
}

std::vector<MachineTraffic> TrafficOf(const Wiring& wiring, const std::vector<Flow>& flows,
                                      uint32_t first_unit, uint32_t num_units, uint32_t first_ipu,
                                      const std::vector<bool>& is_here) {
  const auto num_ipus = static_cast<int64_t>(wiring.ipus().size());
  std::map<arch::LinkEnd, PortBytes> ports;
  for (const Flow& flow : flows) {
    const int64_t from = int64_t{flow.from} - first_unit + first_ipu;
    const int64_t to = int64_t{flow.to} - first_unit + first_ipu;
    if (from < 0 || to < 0 || from >= num_ipus || to >= num_ipus) continue;
    const uint32_t from_ipu = wiring.ipus()[static_cast<size_t>(from)];
    const uint32_t to_ipu = wiring.ipus()[static_cast<size_t>(to)];
    // If the sender's machine is here, the sender's own instance counts the flow.
    const bool ours = flow.from >= first_unit && flow.from < first_unit + num_units;
    if (!ours && is_here[from_ipu / arch::kIpusPerMachine]) continue;
    const auto hops = wiring.Route(from_ipu, to_ipu);
    if (hops.ok()) AddFlow(wiring, *hops, flow.bytes, ports);
  }
  std::vector<MachineTraffic> result;
  for (auto& [end, bytes] : ports) {
    if (!is_here[end.machine]) continue;
    if (result.empty() || result.back().machine != end.machine) result.push_back({end.machine, {}});
    bytes.port = end.port;
    result.back().ports.push_back(bytes);
  }
  return result;
}

}  // namespace vpod::agent
