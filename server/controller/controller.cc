// Life of the controller, and what its files by object share.
#include "server/controller/controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "device/base/object_id.h"
#include "device/base/random_id.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "server/controller/store/backup.h"

namespace vpod::controller {
namespace {

template <class Object>
absl::StatusOr<Object*> OrNotFound(Object* object, absl::string_view noun, const std::string& id) {
  if (object != nullptr) return object;
  return absl::NotFoundError(absl::StrCat(noun, " ", id, " does not exist."));
}

}  // namespace

absl::Status CheckId(absl::string_view id) { return base::CheckObjectId(id); }

Controller::Controller(Store* store, AgentGateway* gateway, ControllerOptions options)
    : store_(store),
      gateway_(gateway),
      options_(std::move(options)),
      boot_id_(base::RandomId()),
      started_(options_.now()),
      last_tick_(started_),
      listening_since_{.time = started_} {}

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(Store* store, AgentGateway* gateway,
                                                               ControllerOptions options) {
  std::unique_ptr<Controller> controller(new Controller(store, gateway, std::move(options)));
  VPOD_RETURN_IF_ERROR(controller->LoadState());
  return controller;
}

absl::Status Controller::Commit(std::vector<Change> changes, const std::string& object,
                                const std::string& user, std::string text) {
  events_.Add(Severity::kInfo, object, std::move(text), user);
  const absl::Status status = CommitWithWaiting(std::move(changes));
  if (!status.ok()) events_.TakeBack();
  return status;
}

absl::Status Controller::CommitWithWaiting(std::vector<Change> changes) {
  VPOD_RETURN_IF_ERROR(fenced_);
  removals_.AddConfirmed(changes);
  VPOD_RETURN_IF_ERROR(store_->Commit(changes, {{{"generation", generation_}}, events_.waiting()}));
  removals_.Committed();
  events_.Committed();
  return absl::OkStatus();
}

absl::StatusOr<Agent*> Controller::FindAgent(const std::string& id) {
  return OrNotFound(state_.FindAgent(id), "Agent", id);
}
absl::StatusOr<Cluster*> Controller::FindCluster(const std::string& id) {
  return OrNotFound(state_.FindCluster(id), "Cluster", id);
}
absl::StatusOr<Allocation*> Controller::FindAllocation(const std::string& id) {
  return OrNotFound(state_.FindAllocation(id), "Allocation", id);
}
absl::StatusOr<Partition*> Controller::FindPartition(const std::string& id) {
  return OrNotFound(state_.FindPartition(id), "Partition", id);
}

absl::StatusOr<std::vector<StoredEvent>> Controller::ListEvents(
    const vipuadmin::ListEventsRequest& request) {
  std::vector<StoredEvent> waiting;
  {
    base::MutexLock lock(mutex_);
    // Events that cannot be written, on a full disk, can be read all the same.
    if (!FlushEvents().ok()) waiting = events_.waiting();
  }
  const size_t limit = request.limit() == 0 ? 1000 : request.limit();
  VPOD_ASSIGN_OR_RETURN(
      std::vector<StoredEvent> events,
      store_->Events(request.after(), static_cast<uint32_t>(limit), request.object()));
  // Meanwhile they may have been written after all.
  const uint64_t last = events.empty() ? request.after() : events.back().number;
  for (StoredEvent& event : waiting) {
    if (event.number > last && (request.object().empty() || event.object == request.object()))
      events.push_back(std::move(event));
  }
  if (events.size() <= limit) return events;
  const auto excess = static_cast<ptrdiff_t>(events.size() - limit);
  if (request.after() == 0) {
    events.erase(events.begin(), events.begin() + excess);
  } else {
    events.erase(events.end() - excess, events.end());
  }
  return events;
}

absl::Status Controller::fenced() {
  base::MutexLock lock(mutex_);
  return fenced_;
}

void Controller::Fence(const std::string& how_known) {
  if (!fenced_.ok()) return;
  const std::string text = absl::StrCat("another controller has taken over: ", how_known);
  events_.Add(Severity::kError, "controller", text);
  // Only to be remembered; the agents refuse this controller in any case.
  store_->Commit({}, {{{"fenced", store_->epoch()}}, events_.waiting()}).IgnoreError();
  events_.Committed();
  fenced_ = absl::FailedPreconditionError(text);
  options_.on_fenced();
}

absl::StatusOr<std::pair<std::string, vipuadmin::BackupSummary>> Controller::Backup(
    const std::string& user, const CallerCheck& check) {
  vipuadmin::BackupSummary summary;
  std::string database;
  {
    base::MutexLock lock(mutex_);
    if (check) VPOD_RETURN_IF_ERROR(check());
    events_.Add(Severity::kInfo, "storage", "backed up", user);
    FlushEvents().IgnoreError();  // a store that cannot be written is all the more to be kept
    VPOD_ASSIGN_OR_RETURN(const uint64_t last_event, store_->LastEvent());
    VPOD_ASSIGN_OR_RETURN(database, store_->Image());
    summary.set_last_event(last_event);
    summary.set_partitions(static_cast<uint32_t>(state_.partitions.size()));
  }
  const int64_t now = absl::ToUnixMillis(absl::Now());
  VPOD_ASSIGN_OR_RETURN(
      std::string bytes,
      SealBackup(database, {.time_ms = now, .version = kVersion, .salvaged = ""}));
  summary.set_bytes(bytes.size());
  summary.set_sha256(base::Sha256Hex(bytes));
  summary.set_time_ms(now);
  summary.set_epoch(store_->epoch());
  return std::pair(std::move(bytes), std::move(summary));
}

absl::Status Controller::FlushEvents() {
  if (events_.empty() && !removals_.has_confirmed()) return absl::OkStatus();
  return CommitWithWaiting({});
}

void Controller::ForgetOldestRemoved() {
  const auto it = removed_.find(removed_order_.front().second);
  // One of the same name may have been removed since.
  if (it != removed_.end() && it->second.since == removed_order_.front().first) removed_.erase(it);
  removed_order_.pop_front();
}

void Controller::Tick() {
  {
    base::MutexLock lock(mutex_);
    const Clock::time_point now = options_.now();
    ++ticks_;
    // A controller that was away itself (stopped, or waiting for a slow disk) has heard nobody;
    // every agent that it waits for gets the whole time again.
    if (now - std::exchange(last_tick_, now) > options_.longest_pause) listening_since_ = Now();
    const auto waited = [now, listening = listening_since_.time](Clock::time_point since) {
      return now - std::max(since, listening);
    };
    SetSilentDown();
    if (waited(Clock::time_point::min()) > options_.agent_timeout)
      SetMissing(now - options_.agent_timeout);
    ForgetUnknownMachines();
    while (!pending_.empty() &&
           waited(pending_.front()->pending_since) > options_.partition_timeout) {
      Partition& partition = *pending_.front();
      const std::vector<const Agent*> absent = Unregistered(partition);
      SetState(partition, vipuuser::PS_ERROR, Trouble::kTimeout,
               absl::StrCat("Not configured within ", options_.partition_timeout.count(), " s",
                            absent.empty() ? "."
                                           : absl::StrCat(": agent ", absent[0]->stored.id(),
                                                          " has not registered.")));
    }
    EndProvisioningDelays();
    RelocateStranded();
    while (!removed_order_.empty() &&
           now - removed_order_.front().first > options_.removed_status_kept) {
      ForgetOldestRemoved();
    }
    // Not written: they wait for the next time, as whatever hinders it hinders every change.
    FlushEvents().IgnoreError();
  }
  Reconcile();
}

}  // namespace vpod::controller
