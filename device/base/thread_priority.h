// The priority of single threads, which Linux has, unlike POSIX.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace vpod::base {

// Gives the calling thread the share of busy processors that a process of this nice value has.
// Other threads keep theirs; threads that it starts later inherit it. Returns false, and changes
// nothing, where the value is lower than before and neither CAP_SYS_NICE nor RLIMIT_NICE permits
// it.
inline bool SetThreadNice(int nice) {
  return setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice) == 0;
}

}  // namespace vpod::base
