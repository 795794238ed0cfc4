// A `vpod restore` at work, and the mark in the POD's directory by which other commands notice one
// that was killed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

// A file in the POD's directory. Its first line names the backup. Its second line describes the POD
// of the backup; the line is missing while nothing has changed yet.
inline constexpr char kRestoreMark[] = "unfinished-restore";

// DataLoss names the backup whose restore was begun in a POD's directory and has not ended.
absl::Status CheckNoRestoreIsUnfinished(const std::string& home);

// The description that BeginChange has left in a POD's directory; nothing if there is no mark, or
// nothing has changed yet.
std::optional<std::string> HalfRestoredPod(const std::string& home);

// Holds the POD's lock from its beginning to its end. If it is destroyed before anything has
// changed, it leaves nothing behind.
class RestoreAttempt {
 public:
  // Where no POD is, the mark is left at once: the next `vpod up` is not to make a new one without
  // a word. A POD that is there stays usable until it changes. `file` names the backup.
  // Unavailable: another command works there, or nothing can be written.
  static absl::StatusOr<std::unique_ptr<RestoreAttempt>> Begin(const Pod& pod,
                                                               const std::string& file);
  ~RestoreAttempt() { Abandon(); }
  RestoreAttempt(const RestoreAttempt&) = delete;
  RestoreAttempt& operator=(const RestoreAttempt&) = delete;

  // The directory was made for it.
  bool is_new() const { return is_new_; }
  // Call before the POD changes, with the description of the POD to be.
  absl::Status BeginChange(const std::string& description);
  // Nothing has changed since BeginChange: the change failed as a whole.
  void TakeBack() { is_marked_ = !was_half_restored_; }
  // The POD is that of the backup.
  void Finish();
  // Removes what the attempt has made, unless it has begun to change the POD of a directory that
  // was there.
  void Abandon();

 private:
  RestoreAttempt(std::string home, std::string file, bool is_new)
      : home_(std::move(home)), file_(std::move(file)), is_new_(is_new) {}
  absl::Status Mark(const std::string& description) const;

  const std::string home_, file_;
  const bool is_new_;
  bool was_half_restored_ = false;  // by an earlier attempt
  bool is_marked_ = false;          // by this attempt, and nothing has changed
  bool is_finished_ = false;        // or abandoned
  base::UniqueFd lock_;
};

}  // namespace vpod::tools
