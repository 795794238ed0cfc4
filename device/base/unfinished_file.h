// Files that get their name when they are whole: what they are until then.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

// A file that its maker holds locked (flock) until it gets its name: so others see that it is in
// use, whatever their process numbers say of its maker, who may be in another container.
class UnfinishedFile {
 public:
  // An empty file `path`.HOST.PROCESS.SESSION; a process may have several sessions, and directories
  // may be shared by hosts. Sessions should be random: containers may have equal hosts and
  // processes. Waits for the one who holds a file of this name. ResourceExhausted: the disk is
  // full. Unavailable: otherwise. The message names `path`.
  static absl::StatusOr<UnfinishedFile> Create(const std::string& path, absl::string_view session);
  UnfinishedFile(UnfinishedFile&& other) noexcept;
  // Removes it if it has not got its name.
  ~UnfinishedFile();

  const std::string& name() const { return name_; }
  // Gives it its name, in the place of the file that has it. Once.
  absl::Status Finish();

 private:
  UnfinishedFile(std::string path, std::string name, int lock)
      : path_(std::move(path)), name_(std::move(name)), lock_(lock) {}

  std::string path_, name_;  // no name once it is finished
  int lock_;                 // a file descriptor
};

// Removes what processes of this host left of `path` when they were killed.
void RemoveLeftovers(const std::string& path);

// Puts a file in the place of `path`, with the mode of the file that it replaces: whole or not at
// all, also when the power fails. `write` fills the file of a given name; if one is replaced,
// others cannot read it while it fills. False: errno, if it is not 0, says why. Unavailable names
// `path`.
absl::Status ReplaceWhole(const std::string& path,
                          const std::function<bool(const std::string& name)>& write);

}  // namespace vpod::base
