#include "client/compiler/executable_file.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/file.h"
#include "device/base/sha256.h"
#include "device/base/status.h"

namespace vpod::compiler {
namespace {

// A file begins with this. The key, the checksum of the rest and the number of the executable's
// bytes follow, then the executable and its origins.
constexpr absl::string_view kMagic("VIPUCACHE\x02", 10);
constexpr size_t kDigits = 64;                    // of a SHA-256
constexpr size_t kMostBytes = size_t{128} << 20;  // twice the longest executable

}  // namespace

program::Limits LimitsWithoutMemory() { return {.arena_bytes = uint64_t{1} << 40}; }

std::string ExecutableFileBytes(const std::string& key, const program::Executable& executable) {
  std::string bytes = executable.Bytes();
  const uint64_t size = bytes.size();
  bytes = absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&size), sizeof(size)), bytes,
                       executable.OriginBytes());
  return absl::StrCat(kMagic, key, base::Sha256Hex(bytes), bytes);
}

absl::StatusOr<ExecutableFile> ParseExecutableFile(absl::string_view bytes,
                                                   const program::Limits& limits) {
  if (!absl::ConsumePrefix(&bytes, kMagic) || bytes.size() < 2 * kDigits)
    return absl::InvalidArgumentError("it is not a compiled executable");
  ExecutableFile read{.key = std::string(bytes.substr(0, kDigits))};
  const absl::string_view checksum = bytes.substr(kDigits, kDigits);
  bytes.remove_prefix(2 * kDigits);
  uint64_t size = 0;
  const bool is_whole = base::Sha256Hex(bytes) == checksum && bytes.size() >= sizeof(size);
  if (is_whole) {
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
  }
  if (!is_whole || size > bytes.size())
    return absl::InvalidArgumentError("it is truncated or damaged");
  VPOD_ASSIGN_OR_RETURN(read.executable, program::Executable::Parse(bytes.substr(0, size), limits,
                                                                    bytes.substr(size)));
  return read;
}

absl::StatusOr<ExecutableFile> ReadExecutableFile(const std::string& path,
                                                  const program::Limits& limits) {
  VPOD_ASSIGN_OR_RETURN(const std::string file, base::ReadNamedFile(path, kMostBytes));
  return ParseExecutableFile(file, limits);
}

absl::Status WriteExecutableFile(const std::string& path, const std::string& key,
                                 const program::Executable& executable) {
  return base::ReplaceFile(path, ExecutableFileBytes(key, executable), /*mode=*/0644);
}

}  // namespace vpod::compiler
