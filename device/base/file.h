// Small files as a whole.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

// The bytes of a file; none when it cannot be read. For files of the system and of our own making.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // unlike the buffer's iterators, it does not throw for a directory
  return std::move(text).str();
}

// FailedPrecondition if the path leads to something that is not a file; OK if to nothing.
absl::Status CheckIsFileOrNothing(const std::string& path);

// For a file that a person names, which may be anything. Pipes are read, too: shells make them of
// `<(command)`. NotFound: it cannot be read; FailedPrecondition: it is a directory or a device, or
// has more than `most` bytes. The messages name the file. To a tool neither is wrong usage
// (base::ExitCode).
inline constexpr size_t kMostConfigBytes = 64u << 20;  // the IPUoF file of a POD65536 has 20 MiB
absl::StatusOr<std::string> ReadNamedFile(const std::string& path, size_t most = kMostConfigBytes);

// Where a file is written that a person names for output: of a link, where it leads.
// FailedPrecondition: that is not a file; NotFound: it is nothing. The messages name the path.
absl::StatusOr<std::string> OutputPath(const std::string& path);

// Puts a file with these bytes and this mode in the place of `path`: whole or not at all, also when
// the power fails, and never readable by others while it fills. Unavailable names the file.
absl::Status ReplaceFile(const std::string& path, absl::string_view text, mode_t mode);

}  // namespace vpod::base
