#include "server/restore.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "server/controller/controller.h"
#include "server/controller/store/backup.h"
#include "server/controller/store/running.h"
#include "server/controller/store/salvage.h"
#include "server/controller/store/store.h"
#include "server/controller/store/wal.h"
#include "server/rpc/agent_gateway.h"

namespace vpod {
namespace {

using controller::Backup;
using controller::RunningFile;
using controller::RunState;
using controller::Store;

constexpr size_t kMostBytes = 4ull << 30;
constexpr const char* kKinds[] = {"agent", "cluster", "allocation", "partition", "user"};

// Numbers that a store gave, which none must give again.
struct Numbers {
  uint64_t epoch = 0, generation = 0;
};

using Ids = std::map<std::string, std::vector<std::string>>;  // by kind

struct Contents {
  Numbers numbers;
  Ids ids;
};

absl::StatusOr<Contents> ContentsOf(Store& store) {
  Contents contents;
  contents.numbers.epoch = store.epoch();
  VPOD_ASSIGN_OR_RETURN(contents.numbers.generation, store.Counter("generation"));
  for (const char* kind : kKinds) {
    VPOD_ASSIGN_OR_RETURN(const auto objects, store.Load(kind));
    for (const auto& [id, data] : objects) contents.ids[kind].push_back(id);
  }
  return contents;
}

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const base::UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && fsync(fd.get()) == 0 ? absl::OkStatus() : Failed("sync", directory);
}

// A lock on the storage as long as the result lives; invalid when there is none.
absl::StatusOr<base::UniqueFd> Lock(const std::string& storage) {
  base::UniqueFd fd(open(storage.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  return absl::FailedPreconditionError(
      absl::StrCat("storage ", storage, " is in use by another vipu-server; stop it first"));
}

// Returns the contents to be replaced; none if they cannot be read, as in a damaged storage.
absl::StatusOr<std::optional<Contents>> LookAt(const std::string& storage, std::string& text) {
  {
    VPOD_ASSIGN_OR_RETURN(const base::UniqueFd lock, Lock(storage));
    if (!lock.valid()) return std::nullopt;
  }
  const auto running = RunningFile::Read(storage);
  if (running.ok() && running->has_value() && (*running)->state == RunState::kRestoring) {
    absl::StrAppend(&text, "A restore that was interrupted is run again.\n");
    return std::nullopt;
  }
  auto store = Store::Open(storage, Store::OpenMode::kOpenOrCreate);
  const absl::StatusOr<Contents> contents =
      store.ok() ? ContentsOf(**store) : absl::StatusOr<Contents>(store.status());
  if (contents.ok()) return *contents;
  absl::StrAppend(&text, "What was there before cannot be read: ", contents.status().message(),
                  "\n");
  return std::nullopt;
}

// Removes what an earlier attempt left.
void RemoveStaged(const std::string& staged) {
  for (const char* suffix : {"", "-wal", "-journal", ".running"}) unlink((staged + suffix).c_str());
}

// Puts the backup into a storage of its own, and has a controller read it. Its numbers begin beyond
// all that were given: by the one that is replaced if it can be read, and since it may not be, by
// the clock. A second has fewer than 2^20 changes.
absl::StatusOr<Contents> Stage(const Backup& backup, const std::string& staged, Numbers given) {
  RemoveStaged(staged);
  VPOD_RETURN_IF_ERROR(base::ReplaceFile(staged, backup.database, 0600));
  VPOD_ASSIGN_OR_RETURN(const auto store, Store::Open(staged, Store::OpenMode::kOpenOrCreate));
  // Whether the controller that was backed up had a successor is history.
  VPOD_RETURN_IF_ERROR(store->Commit({}, {{{"fenced", 0}}, {}}));
  {
    rpc::GrpcAgentGateway gateway(std::nullopt);
    VPOD_RETURN_IF_ERROR(controller::Controller::Create(store.get(), &gateway).status());
  }
  VPOD_ASSIGN_OR_RETURN(Contents contents, ContentsOf(*store));
  const auto now = static_cast<uint64_t>(absl::ToUnixSeconds(absl::Now()));
  Numbers& numbers = contents.numbers;
  numbers.epoch = std::max({numbers.epoch, given.epoch, now});
  numbers.generation = std::max({numbers.generation, given.generation, now << 20});
  VPOD_ASSIGN_OR_RETURN(const uint64_t last_event, store->LastEvent());
  const controller::StoredEvent event{
      last_event + 1,
      absl::ToUnixMillis(absl::Now()),
      "INFO",
      "storage",
      "",
      absl::StrCat("restored from a backup of ",
                   absl::FormatTime(absl::FromUnixMillis(backup.record.time_ms)))};
  VPOD_RETURN_IF_ERROR(
      store->Commit({}, {{{"epoch", numbers.epoch}, {"generation", numbers.generation}}, {event}}));
  return contents;
}

// Everything here can be repeated. No controller starts on the storage before the end.
absl::Status Replace(const std::string& staged, const std::string& storage) {
  // Closed in order, a storage is one file.
  if (access((staged + "-wal").c_str(), F_OK) == 0)
    return absl::UnavailableError(absl::StrCat(staged, " was not written to its end"));
  VPOD_ASSIGN_OR_RETURN(const base::UniqueFd lock, Lock(storage));
  VPOD_ASSIGN_OR_RETURN(const auto running, RunningFile::Open(storage));
  VPOD_RETURN_IF_ERROR(running->Write({RunState::kRestoring, {}}, /*sync=*/true));
  // Files that an earlier restore moved out of the way stay. A restore that was interrupted between
  // the two files is continued, so that they keep their name in common.
  const auto exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  std::string before;
  int number = 0;
  do {
    before = absl::StrCat(storage, ".before-restore-", ++number);
  } while (exists(before) || (exists(before + "-wal") && exists(storage + "-wal")));
  for (const char* suffix : {"-wal", ""}) {
    if (std::rename((storage + suffix).c_str(), (before + suffix).c_str()) != 0 && errno != ENOENT)
      return Failed("rename", storage + suffix);
  }
  if (std::rename(staged.c_str(), storage.c_str()) != 0) return Failed("rename", staged);
  VPOD_RETURN_IF_ERROR(SyncDirectoryOf(storage));
  return running->Remove();
}

void AppendMissing(const Ids& before, const Ids& now, std::string& text) {
  for (const auto& [kind, ids] : before) {
    const auto it = now.find(kind);
    for (const std::string& id : ids) {
      const bool is_there = it != now.end() &&
                            std::find(it->second.begin(), it->second.end(), id) != it->second.end();
      if (!is_there) absl::StrAppend(&text, "Not in the backup: ", kind, " ", id, "\n");
    }
  }
}

}  // namespace

absl::StatusOr<std::string> Salvage(const std::string& storage, const std::string& out) {
  if (access(out.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("--salvage ", out, ": the file exists already; name a new one"));
  }
  VPOD_ASSIGN_OR_RETURN(const base::UniqueFd lock, Lock(storage));
  VPOD_ASSIGN_OR_RETURN(const std::string database, base::ReadNamedFile(storage, kMostBytes));
  std::optional<controller::WalPosition> acknowledged;
  // One that cannot be read says nothing.
  const auto running = RunningFile::Read(storage);
  if (running.ok() && running->has_value() && (*running)->state == RunState::kRunning)
    acknowledged = (*running)->position;
  const auto salvaged =
      controller::Salvage(database, base::ReadFile(storage + "-wal"), acknowledged);
  if (!salvaged.ok()) {
    return absl::DataLossError(
        absl::StrCat("storage ", storage, ": ", salvaged.status().message()));
  }
  VPOD_ASSIGN_OR_RETURN(
      const std::string bytes,
      controller::SealBackup(salvaged->database, {.time_ms = absl::ToUnixMillis(absl::Now()),
                                                  .version = controller::kVersion,
                                                  .salvaged = salvaged->uncertain}));
  VPOD_RETURN_IF_ERROR(base::ReplaceFile(out, bytes, 0600));
  return absl::StrCat(salvaged->uncertain, "Salvaged to: ", out,
                      "; 'vipu-server --restore' replaces the storage with it\n");
}

absl::Status CheckStorage(const std::string& storage) {
  VPOD_ASSIGN_OR_RETURN(const base::UniqueFd lock, Lock(storage));
  VPOD_ASSIGN_OR_RETURN(const std::string database, base::ReadNamedFile(storage, kMostBytes));
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat("storage ", storage, " cannot be trusted: ", why));
  };
  const auto running = RunningFile::Read(storage);
  if (!running.ok()) return damaged(running.status().message());
  std::optional<controller::WalPosition> acknowledged;
  if (running->has_value()) {
    if ((*running)->state == RunState::kRestoring) {
      return absl::FailedPreconditionError(absl::StrCat(
          "storage ", storage, ": a restore was interrupted; run 'vipu-server --restore' again"));
    }
    if ((*running)->state == RunState::kRunning) acknowledged = (*running)->position;
  }
  const std::string log = base::ReadFile(storage + "-wal");
  const controller::WalReport report = controller::JudgeWal(database, log, acknowledged);
  if (report.end == controller::WalEnd::kDamaged) return damaged(report.why);
  // The whole of an intact log can be salvaged.
  const auto contents = controller::Salvage(database, log, acknowledged);
  return contents.ok() ? absl::OkStatus() : damaged(contents.status().message());
}

absl::StatusOr<std::string> Restore(const std::string& file, const std::string& storage) {
  VPOD_ASSIGN_OR_RETURN(const std::string bytes, base::ReadNamedFile(file, kMostBytes));
  VPOD_ASSIGN_OR_RETURN(const Backup backup, controller::OpenBackup(file, bytes));
  std::string text;
  const std::string staged = storage + ".restoring";
  const absl::Cleanup remove = [&] { RemoveStaged(staged); };
  // Tried before the storage is opened, which may finish what a killed controller had begun.
  VPOD_RETURN_IF_ERROR(Stage(backup, staged, Numbers()).status());
  VPOD_ASSIGN_OR_RETURN(const std::optional<Contents> before, LookAt(storage, text));
  VPOD_ASSIGN_OR_RETURN(const Contents now,
                        Stage(backup, staged, before.has_value() ? before->numbers : Numbers()));
  VPOD_RETURN_IF_ERROR(Replace(staged, storage));
  if (before.has_value()) AppendMissing(before->ids, now.ids, text);
  if (!backup.record.salvaged.empty()) absl::StrAppend(&text, backup.record.salvaged);
  std::string counts;
  for (const auto& [kind, ids] : now.ids)
    absl::StrAppend(&counts, counts.empty() ? "" : ", ", ids.size(), " ", kind,
                    ids.size() == 1 ? "" : "s");
  return absl::StrCat(text, "Restored storage: ", storage, ", as of ",
                      absl::FormatTime(absl::FromUnixMillis(backup.record.time_ms)), " (",
                      counts.empty() ? "no objects" : counts, ")\n");
}

}  // namespace vpod
