// Jobs that span processes: joining at the coordinator, and what the processes do together.
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/secret.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "device/engine/lease_group.h"
#include "server/agent/agent_state.h"
#include "server/agent/declared.h"
#include "server/agent/local_listener.h"

namespace vpod::agent {
namespace {

// Names the job in every message between its processes, and proves that the sender belongs to it.
std::string TokenOf(const vipuagent::AgentPartition& partition, absl::string_view job_id) {
  return base::Sha256Hex(absl::StrCat(partition.fabric_key(), "\n", partition.id(), "\n",
                                      partition.config_generation(), "\n", job_id))
      .substr(0, fabric::kTokenBytes);
}

}  // namespace

std::shared_ptr<fabric::Job> Agent::FindOrMakeJob(const Partition& partition,
                                                  const ipuof::v1::JobMember& member,
                                                  bool spans_processes) {
  std::shared_ptr<fabric::Job>& record = jobs_[JobKey(partition.spec.id(), member.job_id())];
  if (record != nullptr) return record;
  const fabric::JobShape shape{std::max(1u, member.num_instances()), member.total_replicas(),
                               member.ipus_per_replica()};
  if (!spans_processes) {
    record = std::make_shared<fabric::Job>(member.job_id(), shape);
    return record;
  }
  const bool is_coordinator = partition.spec.peers(0).endpoint() == endpoint_;
  // The weak pointer to the job itself is set before `form` can be called.
  auto self = std::make_shared<std::weak_ptr<fabric::Job>>();
  record = std::make_shared<fabric::Job>(
      member.job_id(), shape,
      is_coordinator ? fabric::Job::Role::kCoordinator : fabric::Job::Role::kFollower,
      [this, self, spec = partition.spec](const std::vector<fabric::JobPart>& parts) {
        // Fetching the peers' memory may wait for one that hangs.
        executors_.PostWaiting([this, self, spec, parts] {
          if (const auto job = self->lock()) FormJob(job, spec, parts);
        });
      });
  *self = record;
  return record;
}

std::shared_ptr<engine::LeaseGroup> Agent::GroupOf(const Lease& lease) const {
  for (const auto& [id, other] : leases_) {
    if (other->job == lease.job && other->group != nullptr) return other->group;
  }
  return std::make_shared<engine::LeaseGroup>();
}

void Agent::FormJob(const std::shared_ptr<fabric::Job>& job,
                    const vipuagent::AgentPartition& partition,
                    const std::vector<fabric::JobPart>& parts) {
  // A site a process, by its first unit.
  std::map<std::string, fabric::Site> sites;
  std::map<std::string, std::string> sockets;
  for (const fabric::JobPart& part : parts) {
    fabric::Site& site = sites[part.endpoint];
    site.endpoint = part.endpoint;
    site.name = NameOfPeer(partition, part.endpoint);
    site.units.insert(site.units.end(), part.units.begin(), part.units.end());
    sockets[part.endpoint] = part.local_socket;
  }
  for (const vipuagent::Gcd& gcd : partition.gcds()) {
    for (const vipuagent::Slice& slice : gcd.slices()) {
      const auto it = sites.find(slice.endpoint() == endpoint_ ? "" : slice.endpoint());
      if (it != sites.end()) it->second.domain = slice.ild();
    }
  }
  fabric::CollectivesOptions options;
  options.token = TokenOf(partition, job->id());
  options.total_replicas = job->shape().total_replicas;
  options.ipus_per_replica = job->shape().ipus_per_replica;
  std::vector<std::pair<std::string, fabric::Site>> ordered(sites.begin(), sites.end());
  for (auto& [endpoint, site] : ordered) std::sort(site.units.begin(), site.units.end());
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.second.units < b.second.units; });
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (ordered[i].first.empty()) options.here = i;
    options.sites.push_back(std::move(ordered[i].second));
  }
  auto segments = std::make_shared<std::vector<shm::Segment>>();
  const bool shared = std::all_of(sockets.begin(), sockets.end(), [&](const auto& item) {
    return OnOneHost(item.second, local_socket_);
  });
  if (shared) {
    const absl::Status mapped = MapPeers(options.token, sockets, *segments, options.arenas);
    if (!mapped.ok()) return job->Fail(mapped);
  } else if (options_.transport == "shm") {
    return job->Fail(absl::FailedPreconditionError(
        "VPOD_TRANSPORT=shm, but the job's processes do not share memory"));
  }
  options.mappings = segments;
  if (const absl::Status opened = OpenWay(options, shared); !opened.ok()) return job->Fail(opened);
  options.compute = [this](std::function<void()> task) { executors_.PostCompute(std::move(task)); };
  options.fail = [weak = std::weak_ptr<fabric::Job>(job)](const absl::Status& cause) {
    if (const auto strong = weak.lock()) strong->Fail(cause);
  };
  spdlog::info("job {} of partition {} spans {} processes, which exchange {}", job->id(),
               partition.id(), options.sites.size(),
               options.arenas.empty() ? "by messages" : "in shared memory");
  const std::string token = options.token;
  auto collectives = std::make_shared<fabric::Collectives>(std::move(options));
  {
    base::MutexLock lock(fabric_mutex_);
    std::erase_if(collectives_, [](const auto& item) { return item.second.expired(); });
    collectives_[token] = collectives;
  }
  job->Formed(std::move(collectives));
}

absl::Status Agent::OpenWay(fabric::CollectivesOptions& options, bool shared) {
  if (sockets_ == nullptr || (options_.encrypted_fabric && !shared)) {
    options.transport = calls_.get();
    options.address = endpoint_;
    return absl::OkStatus();
  }
  VPOD_ASSIGN_OR_RETURN(fabric::SocketTransport::Binding binding,
                        sockets_->Open(options.token, shared ? fabric::Reach::kThisHost
                                                             : fabric::Reach::kOtherHosts));
  options.transport = sockets_.get();
  options.address = std::move(binding.address);
  options.binding = std::move(binding.open);
  return absl::OkStatus();
}

absl::Status Agent::MapPeers(const std::string& token,
                             const std::map<std::string, std::string>& sockets,
                             std::vector<shm::Segment>& segments,
                             std::map<uint32_t, absl::Span<std::byte>>& arenas) {
  for (const auto& [endpoint, socket] : sockets) {
    if (endpoint.empty()) continue;
    auto fetched = FetchArenas(socket, token);
    if (!fetched.ok()) {
      return absl::UnavailableError(absl::StrCat("cannot share memory with agent ", endpoint, ": ",
                                                 fetched.status().message()));
    }
    for (auto& [unit, segment] : *fetched) {
      arenas[unit] = {segment.data(), segment.size()};
      segments.push_back(std::move(segment));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<UnitArenas> Agent::JobArenas(absl::string_view token) {
  // The executables are held while they are used, because a lease may end meanwhile.
  std::vector<std::pair<LeasePtr, std::shared_ptr<Loaded>>> found;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      const Partition* partition = PartitionOf(*lease);
      if (lease->job == nullptr || lease->loaded == nullptr || partition == nullptr) continue;
      if (TokenOf(partition->spec, lease->job->id()) == token)
        found.emplace_back(lease, lease->loaded);
    }
  }
  if (found.empty()) return absl::NotFoundError("the job is not here");
  UnitArenas arenas;
  for (const auto& [lease, loaded] : found) {
    const uint32_t ipus = lease->open.job().ipus_per_replica();
    for (uint32_t unit : lease->units) {
      VPOD_ASSIGN_OR_RETURN(const auto arena, loaded->engine->Arena(unit / ipus, unit % ipus));
      arenas.emplace_back(
          lease->open.job().replica_offset() * ipus + unit,
          std::make_pair(base::UniqueFd(fcntl(arena.first, F_DUPFD_CLOEXEC, 0)), arena.second));
    }
  }
  return arenas;
}

fabric::Landing Agent::OnFabricMessage(absl::string_view header, size_t bytes) {
  std::shared_ptr<fabric::Collectives> collectives;
  if (header.size() >= fabric::kTokenBytes) {
    base::MutexLock lock(fabric_mutex_);
    const auto it = collectives_.find(std::string(header.substr(0, fabric::kTokenBytes)));
    if (it != collectives_.end()) collectives = it->second.lock();
  }
  // Unexpected messages, such as late ones of a job that has ended, are dropped.
  return collectives == nullptr ? arrivals_.Land(header, bytes)
                                : collectives->OnMessage(header, bytes);
}

std::shared_ptr<PartLink> Agent::LinkToCoordinator(const Partition& partition,
                                                   const LeasePtr& lease) {
  const std::weak_ptr<Lease> weak = lease;
  return std::make_shared<PartLink>(
      lease->job, PartLink::Options{endpoint_, partition.spec.peers(0).endpoint(),
                                    NameOfPeer(partition.spec, partition.spec.peers(0).endpoint()),
                                    [this, weak](const std::string& text) {
                                      if (const LeasePtr strong = weak.lock()) Tell(*strong, text);
                                    }});
}

fabric::v1::JobJoin Agent::DescribePart(const Partition& partition, const Lease& lease) const {
  fabric::v1::JobJoin join;
  join.set_partition_id(partition.spec.id());
  join.set_generation(partition.spec.config_generation());
  join.set_fabric_key(partition.spec.fabric_key());
  *join.mutable_member() = lease.open.job();
  join.set_process(ProcessName(lease.open.process()));
  join.set_part(lease.open.part());
  const uint32_t first = lease.open.job().replica_offset() * lease.open.job().ipus_per_replica();
  for (uint32_t unit : lease.units) join.add_units(first + unit);
  join.set_endpoint(endpoint_);
  join.set_local_socket(LocalSocketForPeers());
  return join;
}

absl::StatusOr<std::shared_ptr<RemotePart>> Agent::JoinRemote(const fabric::v1::JobJoin& request,
                                                              RemotePart::SendEvent send) {
  VPOD_ASSIGN_OR_RETURN(const fabric::v1::JobJoin join, Declared(request));
  std::shared_ptr<RemotePart> part;
  {
    base::MutexLock lock(mutex_);
    const auto it = partitions_.find(join.partition_id());
    if (it == partitions_.end()) {
      return absl::NotFoundError(
          absl::StrCat("partition ", join.partition_id(), " is not on this agent"));
    }
    const vipuagent::AgentPartition& spec = it->second->spec;
    if (spec.config_generation() != join.generation()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "partition ", join.partition_id(), " is at generation ", spec.config_generation()));
    }
    if (!base::IsSecret(spec.fabric_key(), join.fabric_key()))
      return absl::UnauthenticatedError("the peer does not have the partition's key");
    const bool member =
        std::any_of(spec.peers().begin(), spec.peers().end(),
                    [&](const auto& peer) { return peer.endpoint() == join.endpoint(); });
    if (!member || spec.peers(0).endpoint() != endpoint_ || join.endpoint() == endpoint_)
      return absl::InvalidArgumentError("the part is not of a peer of this coordinator");
    if (join.member().total_replicas() < 1 || join.member().ipus_per_replica() < 1 ||
        join.units().empty()) {
      return absl::InvalidArgumentError("the part has no units");
    }
    part = std::make_shared<RemotePart>(FindOrMakeJob(*it->second, join.member(), true),
                                        join.member().instance_index(), join.part(),
                                        join.endpoint(), NameOfPeer(spec, join.endpoint()));
  }
  if (absl::Status status = part->Join(join, endpoint_, std::move(send)); !status.ok()) {
    RemotePartEnded(*part);
    return status;
  }
  base::MutexLock lock(mutex_);
  std::erase_if(remote_parts_, [](const auto& each) { return each.expired(); });
  remote_parts_.push_back(part);
  return part;
}

void Agent::RemotePartEnded(const RemotePart& part) {
  base::MutexLock lock(mutex_);
  ForgetJobIfEmpty(part.job());
}

void Agent::ForgetJobIfEmpty(const std::shared_ptr<fabric::Job>& job) {
  const bool leased = std::any_of(leases_.begin(), leases_.end(),
                                  [&](const auto& item) { return item.second->job == job; });
  if (leased || !job->Empty()) return;
  std::erase_if(jobs_, [&](const auto& item) { return item.second == job; });
}

}  // namespace vpod::agent
