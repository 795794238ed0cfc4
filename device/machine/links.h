// Counters and faults of one machine's link ports (device/arch/topology.h numbers them).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "device/arch/topology.h"
#include "device/base/mutex.h"

namespace vpod::machine {

// Fault of a link at this end.
struct LinkFault {
  bool down = false;                     // carries nothing
  bool swapped = false;                  // the cable sits in the neighbouring port
  double correctable_errors_per_gb = 0;  // above 0 the link has trained with half its lanes
  bool corrupts = false;                 // flips bits of what it carries
  // Programs cannot use the link.
  bool breaks() const { return down || swapped || corrupts; }
};

struct LinkCounters {
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t correctable_errors = 0;
  uint64_t uncorrectable_errors = 0;  // times that the link went down or data were corrupted
};

struct LinkReading {
  LinkFault fault;
  LinkCounters counters;
  // "up", "down", "swapped", "corrupting" or "degraded"
  absl::string_view state() const;
  uint32_t lanes() const;
};

// Bytes that a port sent and received.
struct PortBytes {
  uint32_t port = 0;
  uint64_t tx = 0;
  uint64_t rx = 0;
};

// Thread-safe. Nothing is kept for a machine none of whose links has ever been used or faulty.
class Links {
 public:
  LinkReading Read(uint32_t port) const;
  // Whether any has ever been used or faulty, since the last reset.
  bool touched() const;
  // Correctable errors of an IPU's links.
  uint64_t CorrectableErrors(uint32_t ipu) const;

  void Count(const std::vector<PortBytes>& bytes);
  // Data leave through a port, or come in: they are counted, and a corrupting link flips one of
  // their bits. False when the port is down: nothing passes.
  bool Send(uint32_t port, absl::Span<std::byte> data);
  bool Receive(uint32_t port, absl::Span<std::byte> data);
  // Replaces the fault of a port; an empty one clears it.
  void SetFault(uint32_t port, const LinkFault& fault);
  // Clears the faults of an IPU's ports, of those that belong to no IPU, or of all; the counters
  // stay.
  void ClearFaults(uint32_t ipu);
  void ClearSharedFaults();
  void ClearAllFaults();
  // Clears faults and counters.
  void Reset();

 private:
  struct Port {
    LinkFault fault;
    LinkCounters counters;
    double error_remainder = 0;  // of the next correctable error
  };
  using Ports = std::array<Port, arch::kPortsPerMachine>;
  void ClearFaultsOf(uint32_t first_port, uint32_t num_ports);
  // A link that corrupts flips the bits `flipped` of one byte.
  bool Pass(const PortBytes& bytes, absl::Span<std::byte> data, std::byte flipped);
  void CountOn(Port& port, const PortBytes& bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ports& Allocated() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::unique_ptr<Ports> ports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::machine
