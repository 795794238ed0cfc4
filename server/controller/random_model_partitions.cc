// The model's partitions: what is asked for, and where it is put.
#include <algorithm>

#include "server/controller/random_model.h"

namespace vpod::controller {
namespace {

using Code = absl::StatusCode;

bool PowerOfTwo(uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

}  // namespace

Code Model::Complete(const Cluster& cluster, Wanted& wanted) const {
  const uint32_t ild = IpusPerIld(cluster);
  if (!PowerOfTwo(wanted.size)) return Code::kInvalidArgument;
  const uint32_t ilds = (wanted.size + ild - 1) / ild;
  if (ilds > 1 && cluster.ilds > 1 && !cluster.gateways) return Code::kInvalidArgument;
  if (wanted.gcds == 0) wanted.gcds = ilds;
  if (wanted.gcds > wanted.size || wanted.size % wanted.gcds != 0 || wanted.gcds < ilds)
    return Code::kInvalidArgument;
  if (wanted.reconfigurable.value_or(false) && ilds > 1) return Code::kInvalidArgument;
  if (wanted.routing == "ringswnc" && !(cluster.torus && wanted.size % ild == 0))
    return Code::kInvalidArgument;
  return Code::kOk;
}

Code Model::Place(const std::string& allocation, const Wanted& wanted, const std::string& replaced,
                  uint32_t& first) const {
  const std::set<std::string> members = AgentsOfAllocation(allocation);
  const std::string cluster_id =
      allocations.contains(allocation) ? allocations.at(allocation).cluster : allocation;
  const Cluster& cluster = clusters.at(cluster_id);
  const uint32_t ild = IpusPerIld(cluster);
  // Positions in the cluster, of the allocation's IPUs in order.
  std::vector<uint32_t> positions;
  std::map<uint32_t, bool> free;
  for (uint32_t i = 0; i < cluster.agents.size() * 4; ++i) {
    const std::string& agent = cluster.agents[i / 4];
    if (!members.contains(agent)) continue;
    const std::string holder = PartitionOf(agent, 3 - i % 4);
    positions.push_back(i);
    free[i] = (holder.empty() || holder == replaced) && Usable(agent, 3 - i % 4);
  }
  const uint32_t size = wanted.size;
  const auto all_free = [&](uint32_t begin, uint32_t count) {
    for (uint32_t i = begin; i < begin + count; ++i) {
      if (!free.contains(i) || !free.at(i)) return false;
    }
    return true;
  };
  // A partition of several domains needs the gateways of its machines.
  const auto usable = [&](uint32_t begin, uint32_t count) {
    bool good = all_free(begin, count);
    for (uint32_t i = begin; good && size > ild && i < begin + count; i += 4)
      good = HasGateway(cluster.agents[i / 4]);
    return good;
  };
  const auto all_there = [&](uint32_t begin, uint32_t count) {
    for (uint32_t i = begin; i < begin + count; ++i) {
      if (!free.contains(i)) return false;
    }
    return true;
  };
  // First IPU of the run of neighbouring machines in one ILD that holds the position.
  const auto run_start = [&](uint32_t position) {
    uint32_t begin = position / 4 * 4;
    while (begin % ild != 0 && free.contains(begin - 4)) begin -= 4;
    return begin;
  };
  if (size > positions.size()) return Code::kResourceExhausted;
  if (wanted.index.has_value()) {
    const uint64_t at = uint64_t{*wanted.index} * size;
    if (at + size > positions.size()) return Code::kInvalidArgument;
    first = positions[at];
    const bool one_piece = positions[at + size - 1] == first + size - 1;
    const bool fits = size <= ild ? one_piece && first / ild == (first + size - 1) / ild
                                  : one_piece && first % ild == 0 && size % ild == 0;
    if (!fits) return Code::kInvalidArgument;
    return usable(first, size) ? Code::kOk : Code::kResourceExhausted;
  }
  if (!replaced.empty()) {
    const Partition& present = partitions.at(replaced);
    if (present.wanted.allocation == allocation && present.wanted.size == size &&
        usable(present.first, size)) {
      first = present.first;
      return Code::kOk;
    }
  }
  uint32_t best = 0, best_length = 0;
  if (size > ild) {
    for (uint32_t begin = 0; size % ild == 0 && begin < cluster.agents.size() * 4; begin += ild) {
      if (begin >= ild && usable(begin - ild, ild)) continue;  // not where its chain begins
      uint32_t length = 0;
      while (begin + length < cluster.agents.size() * 4 && usable(begin + length, ild))
        length += ild;
      if (length < size || (best_length != 0 && length >= best_length)) continue;
      best = begin;
      best_length = length;
    }
  } else {
    for (const uint32_t begin : positions) {
      const uint32_t run = run_start(begin);
      if ((begin - run) % size != 0 || begin / ild != (begin + size - 1) / ild ||
          !all_free(begin, size))
        continue;
      uint32_t block = size;
      while (true) {
        const uint32_t larger = run + (begin - run) / (block * 2) * (block * 2);
        if (larger / ild != (larger + block * 2 - 1) / ild || !all_there(larger, block * 2) ||
            !all_free(larger, block * 2))
          break;
        block *= 2;
      }
      if (best_length != 0 && block >= best_length) continue;
      best = begin;
      best_length = block;
    }
  }
  if (best_length == 0) return Code::kResourceExhausted;
  first = best;
  return Code::kOk;
}

Code Model::Plan(Wanted& wanted, const std::string& replaced, uint32_t& first) const {
  const auto attempt = [&](const std::string& allocation) {
    const std::string cluster =
        allocations.contains(allocation) ? allocations.at(allocation).cluster : allocation;
    Wanted completed = wanted;
    const bool is_too_large =
        PowerOfTwo(wanted.size) && wanted.size > 4 * AgentsOfAllocation(allocation).size();
    Code code = is_too_large ? Code::kResourceExhausted : Complete(clusters.at(cluster), completed);
    if (code == Code::kOk) code = Place(allocation, completed, replaced, first);
    if (code == Code::kOk) {
      completed.allocation = allocation;
      completed.cluster = cluster;
      wanted = completed;
    }
    return code;
  };
  const std::vector<std::string> visible = Allocations();
  if (!wanted.allocation.empty()) {
    if (std::count(visible.begin(), visible.end(), wanted.allocation) == 0) return Code::kNotFound;
    const std::string cluster = allocations.contains(wanted.allocation)
                                    ? allocations.at(wanted.allocation).cluster
                                    : wanted.allocation;
    if (!wanted.cluster.empty() && wanted.cluster != cluster && wanted.cluster != wanted.allocation)
      return Code::kInvalidArgument;
    return attempt(wanted.allocation);
  }
  if (!wanted.cluster.empty() && !clusters.contains(wanted.cluster)) return Code::kNotFound;
  Code refusal = Code::kFailedPrecondition;
  for (const std::string& allocation : visible) {
    const std::string cluster =
        allocations.contains(allocation) ? allocations.at(allocation).cluster : allocation;
    if (!wanted.cluster.empty() && wanted.cluster != cluster) continue;
    const Code code = attempt(allocation);
    if (code == Code::kOk) return code;
    if (refusal != Code::kInvalidArgument) refusal = code;
  }
  return refusal;
}

Code Model::CreatePartition(Wanted wanted) {
  if (partitions.contains(wanted.id)) {
    const bool again =
        !wanted.request_id.empty() && partitions[wanted.id].wanted.request_id == wanted.request_id;
    return again ? Code::kOk : Code::kAlreadyExists;
  }
  uint32_t first = 0;
  const Code code = Plan(wanted, "", first);
  if (code != Code::kOk) return code;
  partitions[wanted.id] = {
      .wanted = wanted, .first = first, .generation = ++generation, .pending_since = now};
  return code;
}

Code Model::UpdatePartition(Wanted wanted) {
  if (!partitions.contains(wanted.id)) return Code::kNotFound;
  Partition& partition = partitions[wanted.id];
  const Wanted& before = partition.wanted;
  if (wanted.size == 0) wanted.size = before.size;
  if (!wanted.reconfigurable.has_value()) wanted.reconfigurable = before.reconfigurable;
  if (!wanted.relocatable.has_value()) wanted.relocatable = before.relocatable;
  if (!wanted.no_auto_reset.has_value()) wanted.no_auto_reset = before.no_auto_reset;
  if (wanted.allocation.empty() && wanted.cluster.empty()) wanted.allocation = before.allocation;
  wanted.request_id = before.request_id;
  uint32_t first = 0;
  const Code code = Plan(wanted, wanted.id, first);
  if (code != Code::kOk) return code;
  partition.wanted = wanted;
  partition.first = first;
  partition.generation = ++generation;
  SetPending(partition);
  return code;
}

Code Model::ResetPartition(const std::string& id) {
  if (!partitions.contains(id)) return Code::kNotFound;
  if (Lost(partitions[id])) return Code::kFailedPrecondition;
  partitions[id].generation = ++generation;
  SetPending(partitions[id]);
  return Code::kOk;
}

Code Model::RemovePartition(const std::string& id) {
  return partitions.erase(id) == 1 ? Code::kOk : Code::kNotFound;
}

}  // namespace vpod::controller
