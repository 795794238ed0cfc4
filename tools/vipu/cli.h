// The command line that vipu and vipu-admin share: <tool> [flags] <verb> <noun> [id] [flags].
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace vpod::tools {

// Runs one command, given without the tool's name. Results go to `out`, messages to `err`.
// 0 done, 1 failed, 2 wrong usage.
int VipuMain(bool admin, const std::vector<std::string>& arguments, std::ostream& out,
             std::ostream& err);

}  // namespace vpod::tools
