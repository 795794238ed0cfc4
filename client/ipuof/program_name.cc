#include "client/ipuof/program_name.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"

namespace vpod::ipuof {

namespace fs = std::filesystem;

std::string ProgramName(absl::string_view executable, absl::string_view called) {
  const std::string file = fs::path(std::string(executable)).filename(),
                    link = fs::path(std::string(called)).filename();
  return !link.empty() && absl::StartsWith(file, link) ? link : file;
}

std::string ThisProgramName() {
  std::error_code error;
  std::string called;
  std::getline(std::ifstream("/proc/self/cmdline"), called, '\0');
  return ProgramName(fs::read_symlink("/proc/self/exe", error).string(), called);
}

}  // namespace vpod::ipuof
