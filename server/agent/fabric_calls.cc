// Jobs that span processes: joining at the coordinator, and what the processes do together.
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/secret.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/engine/lease_group.h"
#include "server/agent/agent_state.h"
#include "server/agent/declared.h"
#include "server/agent/local_listener.h"

namespace vpod::agent {
std::shared_ptr<fabric::Job> Agent::FindOrMakeJob(const Partition& partition,
                                                  const ipuof::v1::JobMember& member,
                                                  bool spans_processes) {
  std::shared_ptr<fabric::Job>& record = jobs_[JobKey(partition.spec.id(), member.job_id())];
  if (record != nullptr) return record;
  const fabric::JobShape shape{std::max(1u, member.num_instances()), member.total_replicas(),
                               member.ipus_per_replica()};
  if (!spans_processes) {
    record = std::make_shared<fabric::Job>(member.job_id(), shape);
    TellOfEnded(partition, *record);
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
  TellOfEnded(partition, *record);
  return record;
}

void Agent::TellOfEnded(const Partition& partition, fabric::Job& job) {
  ipuof::v1::AttachOpen open;
  open.set_partition_id(partition.spec.id());
  open.mutable_job()->set_job_id(job.id());
  const auto [begin, end] = reservers_.equal_range(ReservationOf(open));
  for (auto it = begin; it != end; ++it) {
    for (const auto& [instance, process] : it->second->ended_instances)
      job.InstanceEnded(instance, process);
  }
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
  const fabric::JobSecrets secrets = job->secrets();
  options.token = secrets.token;
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
  const bool shared = std::all_of(sockets.begin(), sockets.end(), [&](const auto& item) {
    return OnOneHost(item.second, local_socket_);
  });
  if (shared) {
    const absl::Status mapped = MapPeers(secrets.arena_key, sockets, options);
    if (!mapped.ok()) return job->Fail(mapped);
  } else if (options_.transport == "shm") {
    return job->Fail(absl::FailedPreconditionError(
        "VPOD_TRANSPORT=shm, but the job's processes do not share memory"));
  }
  if (const absl::Status opened = OpenWay(options, shared); !opened.ok()) return job->Fail(opened);
  options.compute = [this](std::function<void()> task) { executors_.PostCompute(std::move(task)); };
  options.fail = [weak = std::weak_ptr<fabric::Job>(job)](const absl::Status& cause) {
    if (const auto strong = weak.lock()) strong->Fail(cause);
  };
  spdlog::info("job {} of partition {} spans {} processes, which exchange {}",
               base::QuotedField(job->id()), partition.id(), options.sites.size(),
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

absl::Status Agent::MapPeers(const std::string& arena_key,
                             const std::map<std::string, std::string>& sockets,
                             fabric::CollectivesOptions& options) {
  auto segments = std::make_shared<std::vector<shm::Segment>>();
  for (const fabric::Site& site : options.sites) {
    if (site.endpoint.empty()) continue;
    const auto refuse = [&](absl::string_view why) {
      return absl::UnavailableError(
          absl::StrCat("cannot share memory with agent ", site.endpoint, ": ", why));
    };
    auto fetched = FetchArenas(sockets.at(site.endpoint), arena_key);
    if (!fetched.ok()) return refuse(fetched.status().message());
    std::vector<uint32_t> units;
    for (auto& [unit, segment] : *fetched) {
      units.push_back(unit);
      options.arenas[unit] = {segment.data(), segment.size()};
      segments->push_back(std::move(segment));
    }
    std::sort(units.begin(), units.end());
    if (units != site.units) return refuse("it gave the memory of other units than it hosts");
  }
  options.mappings = std::move(segments);
  return absl::OkStatus();
}

absl::StatusOr<UnitArenas> Agent::JobArenas(absl::string_view arena_key) {
  // The executables are held while they are used, because a lease may end meanwhile.
  std::vector<std::pair<LeasePtr, std::shared_ptr<Loaded>>> found;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (lease->job == nullptr || lease->loaded == nullptr || !lease->job->spans_processes())
        continue;
      if (base::IsSecret(lease->job->secrets().arena_key, arena_key))
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
    // Without telling by its time how much of a token is right; there are a few jobs at most.
    const absl::string_view shown = header.substr(0, fabric::kTokenBytes);
    for (const auto& [token, of_job] : collectives_) {
      if (base::IsSecret(token, shown)) collectives = of_job.lock();
    }
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
  join.set_boot_id(boot_id_);
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
    const auto peer = std::find_if(spec.peers().begin(), spec.peers().end(), [&](const auto& each) {
      return each.endpoint() == join.endpoint();
    });
    if (peer == spec.peers().end() || spec.peers(0).endpoint() != endpoint_ ||
        join.endpoint() == endpoint_)
      return absl::InvalidArgumentError("the part is not of a peer of this coordinator");
    if (peer->boot_id().empty() || !base::IsSecret(peer->boot_id(), join.boot_id())) {
      return absl::UnauthenticatedError(absl::StrCat(
          "the part is not of the process that the controller knows at ", join.endpoint()));
    }
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
