// An executable in a file, without the initial values of its variables (docs/formats.md: Cached
// executables).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/program/executable.h"

namespace vpod::compiler {

struct ExecutableFile {
  std::string key;  // of the cache: a SHA-256 in hexadecimal
  std::shared_ptr<const program::Executable> executable;
};

// The extension of such files.
inline constexpr char kExecutableFileEnd[] = ".vipuexe";

// Limits of what is only looked at, and may need more memory than an IPU has.
program::Limits LimitsWithoutMemory();

// The bytes of such a file.
std::string ExecutableFileBytes(const std::string& key, const program::Executable& executable);
// InvalidArgument: they are not those of such a file, or are damaged.
absl::StatusOr<ExecutableFile> ParseExecutableFile(absl::string_view bytes,
                                                   const program::Limits& limits = {});

// NotFound: it cannot be read. FailedPrecondition: it is not a regular file. InvalidArgument: it is
// not an executable's, or is damaged.
absl::StatusOr<ExecutableFile> ReadExecutableFile(const std::string& path,
                                                  const program::Limits& limits = {});

// Replaces what is there, wholly or not at all. Unavailable names the file.
absl::Status WriteExecutableFile(const std::string& path, const std::string& key,
                                 const program::Executable& executable);

}  // namespace vpod::compiler
