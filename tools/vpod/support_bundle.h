// `vpod support-bundle`: what those who help with a POD ask for, in one file.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

// "vpod-support-lab2-20230504T091241Z.tar.gz", from the POD's name or that of its directory.
std::string SupportBundleName(const Pod& pod);

// Writes the ends of the logs, status, objects and events, the doctor's findings, versions,
// environment and configuration to a file that only its owner can read. Values of keys and
// passwords are left out. AlreadyExists: the file is there; Unavailable: it cannot be written.
absl::Status WriteSupportBundle(const Pod& pod, const std::string& file);

// A file of JSON, or one of key="value" lines, without the values of keys, passwords, secrets and
// tokens. What cannot be read as such, like a file that was cut off, may have them anywhere: only
// its size is told.
std::string JsonWithoutSecrets(const std::string& text);
std::string HclWithoutSecrets(const std::string& text);

}  // namespace vpod::tools
