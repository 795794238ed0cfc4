#include "client/vipu/pod_home.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/vipu/config.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::vipu {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNameBytes = 63;

// One spelling of a directory: absolute, without a last slash.
std::string Normal(const std::string& path) {
  std::error_code error;
  const fs::path normal = fs::absolute(path, error).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

// As ids of partitions are, so that it is one word and one directory.
absl::Status CheckName(const std::string& name) {
  const auto fits = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kMostNameBytes &&
      std::all_of(name.begin(), name.end(), fits) &&
      absl::ascii_isalnum(static_cast<unsigned char>(name[0])))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", base::Printable(name), "' cannot name a POD: a name has 1 to ", kMostNameBytes,
      " letters, digits and '.', '_', '-', and begins with a letter or a digit"));
}

// <state>/vpod; empty when no place is known.
std::string StateDirectory() {
  // A relative path does not count (XDG Base Directory Specification).
  const std::string state = Environment("XDG_STATE_HOME");
  if (!state.empty() && state[0] == '/') return Normal(state + "/vpod");
  const std::string home = Environment("HOME");
  return home.empty() ? "" : Normal(home + "/.local/state/vpod");
}

std::string PodsDirectory() { return StateDirectory() + "/pods"; }
std::string InUseFile() { return StateDirectory() + "/in-use"; }

absl::StatusOr<std::string> DefaultHome() {
  const std::string home = Environment("HOME");
  if (home.empty()) return absl::InvalidArgumentError("neither VPOD_HOME nor HOME is set");
  return Normal(home + "/.vpod");
}

}  // namespace

absl::StatusOr<std::optional<ChosenPod>> FindChosenPod() {
  const char* named = std::getenv("VPOD_HOME");
  if (named != nullptr && *named == '\0') {
    return absl::InvalidArgumentError(
        "VPOD_HOME is empty; name a directory, or unset it for ~/.vpod");
  }
  if (named != nullptr) {
    const std::string home = Normal(named);
    return ChosenPod{home, absl::StrCat("VPOD_HOME is ", home)};
  }
  const std::string name = PodInUse();
  if (name == kDefaultPod) return std::nullopt;
  VPOD_ASSIGN_OR_RETURN(const std::string home, HomeOfPod(name));
  return ChosenPod{home, absl::StrCat("the POD in use is ", name, " in ", home)};
}

absl::StatusOr<std::string> PodHome() {
  VPOD_ASSIGN_OR_RETURN(const auto chosen, FindChosenPod());
  if (chosen.has_value()) return chosen->home;
  return DefaultHome();
}

absl::Status CheckPodEnvironment() {
  const std::string made_for = Environment(kEnvironmentHome);
  if (std::getenv("VPOD_HOME") == nullptr) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const std::string home, PodHome());
  if (made_for.empty()) return absl::OkStatus();
  std::error_code error;
  if (home == made_for || fs::equivalent(home, made_for, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("VPOD_HOME is ", home, ", but this shell's variables are those of the POD in ",
                   made_for, "; run eval \"$(vpod env)\""));
}

absl::StatusOr<std::string> HomeOfPod(const std::string& name) {
  VPOD_RETURN_IF_ERROR(CheckName(name));
  if (name == kDefaultPod) return DefaultHome();
  if (StateDirectory().empty())
    return absl::InvalidArgumentError("neither XDG_STATE_HOME nor HOME is set");
  return absl::StrCat(PodsDirectory(), "/", name);
}

std::string NameOfPod(const std::string& home) {
  if (const auto of_default = DefaultHome(); of_default.ok() && *of_default == home)
    return kDefaultPod;
  const fs::path path = home;
  const bool named = !StateDirectory().empty() && path.parent_path() == PodsDirectory();
  return named ? path.filename().string() : "";
}

std::vector<std::string> PodNames() {
  std::vector<std::string> names;
  std::error_code error;
  if (StateDirectory().empty()) return names;
  for (const auto& entry : fs::directory_iterator(PodsDirectory(), error)) {
    const std::string name = entry.path().filename().string();
    if (CheckName(name).ok() && entry.is_directory(error)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string PodInUse() {
  if (StateDirectory().empty()) return kDefaultPod;
  const std::string name(absl::StripAsciiWhitespace(base::ReadFile(InUseFile())));
  return CheckName(name).ok() ? name : kDefaultPod;
}

absl::Status UsePod(const std::string& name) {
  VPOD_RETURN_IF_ERROR(HomeOfPod(name).status());
  if (StateDirectory().empty())
    return absl::InvalidArgumentError("neither XDG_STATE_HOME nor HOME is set");
  std::error_code error;
  fs::create_directories(StateDirectory(), error);
  return base::ReplaceFile(InUseFile(), name + "\n", 0644);
}

}  // namespace vpod::vipu
