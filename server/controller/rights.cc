// What follows for partitions, fabric keys and jobs when users lose rights: because they are
// removed, lose an allocation or get a new access key. They may have kept IPUoF files and hold
// leases, so what they have lost is taken from them on the agents, too.
#include "server/controller/rights.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "server/controller/controller.h"

namespace vpod::controller {
namespace {

// Whether the partition goes with its creator's right. Others may have jobs on a shared one.
bool IsToGo(const Partition& partition, const LostPartition& loss, const RightsChange& change) {
  return loss.from_creator && change.jobs == vipuadmin::JOBS_END &&
         !partition.stored.requirements().shared();
}

std::string TextOf(const LostPartition& loss, const RightsChange& change) {
  const std::string users = absl::StrJoin(loss.users, ", ");
  return absl::StrCat(
      loss.from_creator ? absl::StrCat("handed over to ", change.by) : "new fabric key", ": ",
      change.object, " was changed; jobs of ", users,
      change.jobs == vipuadmin::JOBS_END ? " end" : " go on");
}

}  // namespace

void Controller::AddLosses(const Caller& before, const Caller* after, bool new_key,
                           RightsChange& change) {
  for (const auto& [id, partition] : state_.partitions) {
    const PartitionAccess access = AccessTo(*partition);
    const bool is_creator = access.created_by == before.user_id;
    if (!is_creator && !MayUseDevices(before, access)) continue;
    const bool keeps_right = after != nullptr && MayUseDevices(*after, access);
    if (keeps_right && !new_key) continue;
    LostPartition& loss = change.lost[id];
    loss.users.insert(before.user_id);
    loss.from_creator = loss.from_creator || (is_creator && !keeps_right);
  }
}

absl::Status Controller::CheckDecided(const RightsChange& change) {
  if (change.lost.empty()) return absl::OkStatus();
  const auto& [first, loss] = *change.lost.begin();
  if (change.jobs != vipuadmin::JOBS_END && change.jobs != vipuadmin::JOBS_GO_ON) {
    return absl::FailedPreconditionError(absl::StrCat(
        change.subject, " is in use by partition ", first,
        ". The change takes rights to it from user ", *loss.users.begin(),
        ": give --end-jobs to end the user's jobs, or --keep-jobs to let them go on."));
  }
  for (const auto& [id, each] : change.lost) {
    if (!each.from_creator || IsToGo(*state_.FindPartition(id), each, change)) continue;
    if (!change.by.empty() && !each.users.contains(change.by)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("Partition ", id, " would be handed over to user ", change.by,
                     ", who loses it by this change; have another administrator make it."));
  }
  return absl::OkStatus();
}

absl::Status Controller::CommitRights(std::vector<Change> changes, const RightsChange& change) {
  std::vector<std::pair<Partition*, store::StoredPartition>> staying;
  std::vector<std::pair<Partition*, store::StoredRemoval>> going;
  for (const auto& [id, loss] : change.lost) {
    Partition& partition = *state_.FindPartition(id);
    if (IsToGo(partition, loss, change)) {
      going.emplace_back(&partition, Removals::Of(partition, state_.AgentsOf(partition)));
      changes.push_back({"partition", id, std::nullopt});
      changes.push_back(Removals::Row(going.back().second));
      continue;
    }
    store::StoredPartition next = partition.stored;
    next.set_generation(++generation_);
    next.set_key_generation(generation_);
    next.set_fabric_key(base::RandomId());
    // All agents of an ACTIVE partition have ended what was to end so far.
    if (partition.state == vipuuser::PS_ACTIVE) next.clear_ended_before();
    for (const std::string& user : loss.users) {
      if (change.jobs == vipuadmin::JOBS_END) (*next.mutable_ended_before())[user] = generation_;
    }
    if (loss.from_creator) next.set_created_by(change.by);
    changes.push_back({"partition", id, next.SerializeAsString()});
    staying.emplace_back(&partition, std::move(next));
  }
  VPOD_RETURN_IF_ERROR(Commit(std::move(changes), change.object, change.by, change.text));
  for (auto& [partition, next] : staying) {
    partition->stored = std::move(next);
    events_.Add(Severity::kInfo, absl::StrCat("partition ", partition->id()),
                TextOf(change.lost.at(partition->id()), change), change.by);
    state_.Touch(*partition);
    // A partition that one agent refused may run on the others, which must be told.
    if (partition->state == vipuuser::PS_ERROR && partition->trouble == Trouble::kRefused) {
      SetPending(*partition);
    } else {
      UpdateState(*partition);
    }
  }
  for (auto& [partition, removal] : going) {
    events_.Add(Severity::kInfo, absl::StrCat("partition ", partition->id()),
                absl::StrCat("removed: ", change.object, " was changed"), change.by);
    Removed(*partition, std::move(removal));
  }
  return absl::OkStatus();
}

}  // namespace vpod::controller
