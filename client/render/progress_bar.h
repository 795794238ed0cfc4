// The bar that shows how far something is, in the form of the one that the real tools show:
//   Graph compilation: 100%|██████████| 100/100 [00:03<00:00]
#pragma once

#include <chrono>
#include <string>

#include "absl/strings/string_view.h"

namespace vpod::render {

// `done` is the share that is done, 0 to 1; the time that is left is a guess by it.
std::string ProgressBar(absl::string_view what, double done, std::chrono::duration<double> elapsed);

}  // namespace vpod::render
