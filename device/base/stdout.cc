#include "device/base/stdout.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vpod::base {

void CheckStdoutAtExit() {
  std::atexit([] {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
    // The reason of an earlier failure is not known any more.
    std::fprintf(stderr, "%s: error: cannot write to stdout%s%s\n", program_invocation_short_name,
                 errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno));
    _exit(1);
  });
}

}  // namespace vpod::base
