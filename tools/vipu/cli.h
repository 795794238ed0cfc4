// The command line that vipu and vipu-admin share: <tool> [flags] <verb> <noun> [id] [flags].
#pragma once

namespace vpod::tools {

// Runs one command. 0 done, 1 failed, 2 wrong usage.
int VipuMain(int argc, char** argv, bool admin);

}  // namespace vpod::tools
