#include "tools/popvision/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/profile/unfinished.h"
#include "device/base/random_id.h"
#include "device/base/unique_fd.h"

namespace vpod::popvision {

absl::Status WriteOutput(const std::string& path, const std::function<void(std::ostream&)>& write) {
  const auto failed = [](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("cannot write ", why));
  };
  profile::RemoveLeftovers(path);
  auto unfinished = profile::UnfinishedFile::Create(path, base::RandomId());
  if (!unfinished.ok()) return failed(unfinished.status().message());
  std::ofstream file(unfinished->name(), std::ios::binary);
  write(file);
  file.close();
  const base::UniqueFd written(file ? open(unfinished->name().c_str(), O_RDONLY | O_CLOEXEC) : -1);
  if (!written.valid() || fsync(written.get()) != 0)
    return failed(absl::StrCat(path, ": ", std::strerror(errno)));
  const absl::Status finished = unfinished->Finish();
  return finished.ok() ? finished : failed(finished.message());
}

}  // namespace vpod::popvision
