// A POD in one file: `vpod backup` and `vpod restore`.
//
// The file is a compressed tar archive of what makes a POD what it is: pod.json, a backup of the
// controller's storage, client files, certificates and IPUoF files. It contains keys.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/vpod/ending_signals.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

inline constexpr char kStoreFile[] = "store.backup";  // in the archive

// Writes a POD that runs to a new file of mode 0600. AlreadyExists: the file is there.
absl::Status BackUp(const Pod& pod, const std::string& file);

// Puts the POD of a file in its place, and says what vipu-server says; Pod::Up starts it then.
// InvalidArgument: the file is no backup of a POD; FailedPrecondition: another POD is there. A
// refusal leaves everything as it was. A signal that ends the process says what remains, also after
// the end.
absl::StatusOr<std::string> Restore(Pod& pod, const std::string& file, EndingSignals& signals);

}  // namespace vpod::tools
