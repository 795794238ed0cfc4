#include "tools/vpod/backup.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/vipu/client.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/ending_signals.h"
#include "tools/vpod/restore_attempt.h"
#include "tools/vpod/run_program.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{60};

// Makes all directories of a tree readable and writable for their owner. An archive may close some
// of them, and then nothing below them could be removed.
void OpenDirectories(const std::string& root) {
  std::error_code error, ignored;
  const auto open = [&](const fs::path& directory) {
    fs::permissions(directory, fs::perms::owner_all, fs::perm_options::add, ignored);
  };
  open(root);
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator entry(root, error); !error && entry != end;
       entry.increment(error)) {
    if (fs::is_directory(entry->symlink_status(ignored))) open(entry->path());
  }
}

void RemoveTree(const std::string& root) {
  std::error_code error;
  OpenDirectories(root);
  fs::remove_all(root, error);
}

// A directory for its owner only, which goes with the object, or when a signal ends the process. It
// holds keys: what a command that was killed left is removed by the next one. A lock beside the
// files says whether the process that made them is still there.
class PrivateDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<PrivateDirectory>> Make(EndingSignals& signals) {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    RemoveThoseOfTheKilled(parent);
    std::string root = (parent / (std::string(kPrefix) + "XXXXXX")).string();
    if (mkdtemp(root.data()) == nullptr)
      return absl::UnavailableError(
          absl::StrCat("cannot make the directory ", root, ": ", std::strerror(errno)));
    signals.AddCleanUp([root] { RemoveTree(root); });
    std::unique_ptr<PrivateDirectory> made(new PrivateDirectory(root));
    made->lock_ = Lock(root, O_CREAT);
    if (made->lock_.valid() && fs::create_directory(made->path(), error)) return made;
    return absl::UnavailableError(absl::StrCat("cannot make the directory ", made->path()));
  }
  ~PrivateDirectory() { RemoveTree(root_); }

  std::string path() const { return root_ + "/files"; }

 private:
  static constexpr char kPrefix[] = "vpod-backup-";

  explicit PrivateDirectory(std::string root) : root_(std::move(root)) {}

  // Invalid if another process has it, or it is not there.
  static base::UniqueFd Lock(const std::string& root, int flags) {
    base::UniqueFd lock(open((root + "/lock").c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
    if (lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) lock = base::UniqueFd();
    return lock;
  }
  static void RemoveThoseOfTheKilled(const fs::path& parent) {
    std::error_code error;
    std::vector<std::string> left;
    const fs::directory_iterator end;
    for (fs::directory_iterator entry(parent, error); !error && entry != end;
         entry.increment(error)) {
      const std::string path = entry->path().string();
      struct stat info {};
      if (absl::StartsWith(entry->path().filename().string(), kPrefix) &&
          lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid())
        left.push_back(path);
    }
    for (const std::string& path : left) {
      if (Lock(path, 0).valid()) RemoveTree(path);
    }
  }

  const std::string root_;
  base::UniqueFd lock_;
};

absl::Status NotABackup(const std::string& file, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(file, " is not a file of 'vpod backup': ", why));
}

// The values of the POD, before anything is done with them.
absl::Status CheckShapeOf(const std::string& file, const std::string& directory) {
  const auto shape = ParseShape(base::ReadFile(absl::StrCat(directory, "/", kShapeFile)));
  if (!shape.ok()) {
    return NotABackup(file,
                      absl::StrCat("its ", kShapeFile, " is damaged: ", shape.status().message()));
  }
  // A POD is backed up while it runs.
  if (shape->unfinished || shape->addresses.empty())
    return NotABackup(file, absl::StrCat("its ", kShapeFile, " is of a POD that was never up"));
  if (!Pod(directory).Shape().ok())
    return NotABackup(file, "it lacks the administrator's access key or certificates");
  return absl::OkStatus();
}

// Only what BackUp writes, so that nothing leads out of the directory.
absl::Status CheckUnpacked(const std::string& file, const std::string& directory) {
  std::error_code error;
  const fs::recursive_directory_iterator end;
  // A loop over a range would throw where a directory cannot be read.
  for (fs::recursive_directory_iterator entry(directory, error); !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    const fs::file_status status = entry->symlink_status(unknown);
    if (!fs::is_regular_file(status) && !fs::is_directory(status))
      return NotABackup(file, "it has more than files and directories");
  }
  if (error) return NotABackup(file, "it has a directory that cannot be read");
  for (const std::string& name : {std::string(kStoreFile), std::string(kShapeFile)}) {
    if (!fs::is_regular_file(absl::StrCat(directory, "/", name), error))
      return NotABackup(file, absl::StrCat("it has no ", name));
  }
  return CheckShapeOf(file, directory);
}

absl::Status Unpack(const std::string& file, const std::string& directory) {
  constexpr char kDatabase[] = "SQLite format 3";
  // Pipes and devices are none.
  VPOD_ASSIGN_OR_RETURN(const std::string bytes, base::ReadNamedFile(file, size_t{4} << 30));
  if (absl::StartsWith(bytes, kDatabase))
    return NotABackup(file, "it is a storage alone, which 'vipu-server --restore' takes");
  const std::string archive = directory + "/archive";
  VPOD_RETURN_IF_ERROR(base::ReplaceFile(archive, bytes, 0600));
  const auto unpacked = RunProgram(
      {"tar", "-C", directory, "--no-same-owner", "--no-same-permissions", "-xzf", archive});
  std::error_code error;
  fs::remove(archive, error);
  if (absl::IsUnavailable(unpacked.status())) return unpacked.status();
  if (!unpacked.ok()) return NotABackup(file, "it is not an intact archive");
  return CheckUnpacked(file, directory);
}

}  // namespace

absl::Status BackUp(const Pod& pod, const std::string& file) {
  EndingSignals signals("vpod backup", [file] { return file + " is not written"; });
  // Before anything is asked for: a backup is not to be lost to the next one.
  std::error_code error;
  if (fs::exists(fs::symlink_status(file, error)))
    return absl::AlreadyExistsError(absl::StrCat(file, " is there already; name a new file"));
  VPOD_ASSIGN_OR_RETURN(const PodShape shape, pod.Shape());
  if (shape.unfinished || pod.ServerPid() == 0)
    return absl::FailedPreconditionError(
        absl::StrCat("the POD in ", pod.home(), " does not run; 'vpod up' starts it"));
  VPOD_ASSIGN_OR_RETURN(const auto staged, PrivateDirectory::Make(signals));
  VPOD_ASSIGN_OR_RETURN(const auto storage, vipu::Client(ApiOf(shape), kPatience).Backup());
  VPOD_RETURN_IF_ERROR(
      base::ReplaceFile(absl::StrCat(staged->path(), "/", kStoreFile), storage.first, 0600));
  VPOD_RETURN_IF_ERROR(pod.CopyFiles(staged->path()));
  VPOD_ASSIGN_OR_RETURN(const std::string archive,
                        RunProgram({"tar", "-C", staged->path(), "-czf", "-", "."}));
  return signals.Undisturbed([&] { return base::ReplaceFile(file, archive, 0600); },
                             [file] { return file + " is written"; });
}

absl::StatusOr<std::string> Restore(Pod& pod, const std::string& file, EndingSignals& signals) {
  VPOD_ASSIGN_OR_RETURN(const auto attempt, RestoreAttempt::Begin(pod, file, signals));
  VPOD_ASSIGN_OR_RETURN(const auto staged, PrivateDirectory::Make(signals));
  VPOD_RETURN_IF_ERROR(Unpack(file, staged->path()));
  auto replaced = pod.Replace(staged->path(), *attempt);
  if (replaced.ok()) return replaced;
  // Nobody else knows where it was unpacked.
  return absl::Status(
      replaced.status().code(),
      absl::StrReplaceAll(replaced.status().message(), {{staged->path() + "/", file + ": "}}));
}

}  // namespace vpod::tools
