// Where the data of link tests arrive: memory of the kind that IPUs have, which waits for what is
// sent under a name.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "device/fabric/transport.h"
#include "device/shm/segment.h"

namespace vpod::agent {

// Thread-safe.
class LinkArrivals {
 public:
  static constexpr size_t kMostBytes = 1 << 20;  // of one arrival
  static constexpr size_t kMost = 1024;          // at a time

  // Makes room; the name to send under. InvalidArgument or ResourceExhausted beyond the bounds.
  absl::StatusOr<std::string> Expect(size_t bytes);
  // Where data under a name go; nowhere when they are not expected.
  fabric::Landing Land(absl::string_view name, size_t bytes);
  // Waits until they are there and hands them over. NotFound for an unknown name, Unavailable when
  // nothing comes.
  absl::StatusOr<std::shared_ptr<shm::Segment>> Take(const std::string& name);

 private:
  struct Arrival {
    std::shared_ptr<shm::Segment> memory;
    std::chrono::steady_clock::time_point expected;
    bool landing = false, landed = false;
  };
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Arrival, std::less<>> arrivals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::agent
