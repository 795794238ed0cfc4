#include "tools/vpod/new_project.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

struct ProjectFile {
  const char* name;
  const char* text;  // with kName for the name of the program
};

constexpr char kName[] = "@NAME@";

constexpr ProjectFile kCppFiles[] = {
    {
        "CMakeLists.txt",
#include "tools/vpod/project/CMakeLists.inc"
    },
    {
        "Makefile",
#include "tools/vpod/project/Makefile.inc"
    },
    {
        "README.md",
#include "tools/vpod/project/README-cpp.inc"
    },
    {
        "main.cc",
#include "tools/vpod/project/first_cc.inc"
    },
};

constexpr ProjectFile kPythonFiles[] = {
    {
        "README.md",
#include "tools/vpod/project/README-python.inc"
    },
    {
        "main.py",
#include "tools/vpod/project/first_py.inc"
    },
};

// CMake and make take these names.
bool IsProgramName(absl::string_view name) {
  return !name.empty() && absl::ascii_isalpha(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_';
         });
}

absl::Status WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path.string(), ": ", std::generic_category().message(errno)));
}

}  // namespace

absl::Status WriteProject(const std::string& directory, bool python) {
  fs::path path(directory);
  if (!path.has_filename()) path = path.parent_path();  // "digits/"
  const std::string name = path.filename().string();
  if (!IsProgramName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", directory,
                     "' does not end in a name for a program; use letters, digits, "
                     "- and _, and a letter first"));
  }
  std::error_code error;
  if (!fs::create_directory(path, error)) {
    if (!error || error == std::errc::file_exists)
      return absl::AlreadyExistsError(absl::StrCat(path.string(), " is there already"));
    return absl::UnavailableError(
        absl::StrCat("cannot make ", path.string(), ": ", error.message()));
  }
  const auto files = python ? absl::MakeConstSpan(kPythonFiles) : absl::MakeConstSpan(kCppFiles);
  for (const ProjectFile& file : files) {
    const absl::Status written =
        WriteFile(path / file.name, absl::StrReplaceAll(file.text, {{kName, name}}));
    if (!written.ok()) {
      fs::remove_all(path, error);
      return written;
    }
  }
  return absl::OkStatus();
}

}  // namespace vpod::tools
