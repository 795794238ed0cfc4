// Parts of the tests in which clients try to use a daemon up: what an attack costs the daemon,
// hostile bytes, connections that say nothing.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <string>
#include <vector>

#include "device/base/unique_fd.h"

namespace vpod::testing {

#ifdef __SANITIZE_ADDRESS__
inline constexpr long kTimes = 4;  // shadow memory and what is kept of freed memory
#else
inline constexpr long kTimes = 1;
#endif

// What a process has; nothing, if it has ended.
struct Footprint {
  long memory_kib = 0, peak_kib = 0, threads = 0, descriptors = 0;
};
Footprint FootprintOf(int pid);

// What an attack costs a process.
class Cost {
 public:
  // From here on the peak counts.
  void Begin(int pid);
  // Prints the cost since then, at its worst, and fails the test if it is more.
  void ExpectHeld(const std::string& attack, long most_mib, long most_threads = 16) const;
  long threads_before() const { return before_.threads; }

 private:
  int pid_ = 0;
  Footprint before_;
};

// A field of a message that has bytes: tag, length, contents.
std::string Field(int number, const std::string& contents);
grpc::ByteBuffer Buffer(const std::string& bytes);
// So many MiB of zeros that take one here.
grpc::ByteBuffer Zeros(size_t mib);

// Connections to host:port (IPv4) that send `bytes` each, and nothing more. They may be closed by
// the other end already.
std::vector<base::UniqueFd> ConnectTo(const std::string& endpoint, int count,
                                      const std::string& bytes = "");
// 1,000 idle connections at the exporter of that URL keep nobody from reading its metrics; prints
// how long that takes meanwhile.
void ExpectMetricsSeen(const std::string& url, const std::string& what);

// Milliseconds since then.
long Since(std::chrono::steady_clock::time_point begin);

}  // namespace vpod::testing
