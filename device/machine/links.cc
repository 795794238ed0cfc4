#include "device/machine/links.h"

#include <cmath>

namespace vpod::machine {

absl::string_view LinkReading::state() const {
  if (fault.down) return "down";
  if (fault.swapped) return "swapped";
  if (fault.corrupts) return "corrupting";
  return fault.correctable_errors_per_gb > 0 ? "degraded" : "up";
}

uint32_t LinkReading::lanes() const {
  if (fault.down) return 0;
  return fault.correctable_errors_per_gb > 0 ? arch::kLanesPerLink / 2 : arch::kLanesPerLink;
}

Links::Ports& Links::Allocated() {
  if (ports_ == nullptr) ports_ = std::make_unique<Ports>();
  return *ports_;
}

LinkReading Links::Read(uint32_t port) const {
  base::MutexLock lock(mutex_);
  if (ports_ == nullptr) return {};
  return {(*ports_)[port].fault, (*ports_)[port].counters};
}

bool Links::touched() const {
  base::MutexLock lock(mutex_);
  return ports_ != nullptr;
}

uint64_t Links::CorrectableErrors(uint32_t ipu) const {
  base::MutexLock lock(mutex_);
  if (ports_ == nullptr) return 0;
  uint64_t errors = 0;
  for (uint32_t i = 0; i < arch::kLinksPerIpu; ++i)
    errors += (*ports_)[ipu * arch::kLinksPerIpu + i].counters.correctable_errors;
  return errors;
}

void Links::Count(const std::vector<PortBytes>& bytes) {
  base::MutexLock lock(mutex_);
  Ports& ports = Allocated();
  for (const PortBytes& each : bytes) CountOn(ports[each.port], each);
}

void Links::CountOn(Port& port, const PortBytes& bytes) {
  port.counters.tx_bytes += bytes.tx;
  port.counters.rx_bytes += bytes.rx;
  if (port.fault.correctable_errors_per_gb <= 0) return;
  // The receiver is who corrects, but a cable is bad in both directions.
  double whole = 0;
  port.error_remainder =
      std::modf(port.error_remainder + port.fault.correctable_errors_per_gb *
                                           static_cast<double>(bytes.tx + bytes.rx) / 1e9,
                &whole);
  port.counters.correctable_errors += static_cast<uint64_t>(whole);
}

// Different bits, lest two bad ends of a link heal each other.
bool Links::Send(uint32_t port, absl::Span<std::byte> data) {
  return Pass({port, data.size(), 0}, data, std::byte{0x01});
}

bool Links::Receive(uint32_t port, absl::Span<std::byte> data) {
  return Pass({port, 0, data.size()}, data, std::byte{0x80});
}

bool Links::Pass(const PortBytes& bytes, absl::Span<std::byte> data, std::byte flipped) {
  base::MutexLock lock(mutex_);
  Port& port = Allocated()[bytes.port];
  if (port.fault.down) return false;
  CountOn(port, bytes);
  if (port.fault.corrupts && !data.empty()) {
    data[data.size() / 2] ^= flipped;
    ++port.counters.uncorrectable_errors;
  }
  return true;
}

void Links::SetFault(uint32_t port, const LinkFault& fault) {
  base::MutexLock lock(mutex_);
  Port& place = Allocated()[port];
  if (fault.down && !place.fault.down) ++place.counters.uncorrectable_errors;
  place.fault = fault;
  place.error_remainder = 0;
}

void Links::ClearFaultsOf(uint32_t first_port, uint32_t num_ports) {
  base::MutexLock lock(mutex_);
  if (ports_ == nullptr) return;
  for (uint32_t port = first_port; port < first_port + num_ports; ++port)
    (*ports_)[port].fault = {};
}

void Links::ClearFaults(uint32_t ipu) {
  ClearFaultsOf(ipu * arch::kLinksPerIpu, arch::kLinksPerIpu);
}

void Links::ClearSharedFaults() {
  ClearFaultsOf(arch::kFirstSyncPort, arch::kPortsPerMachine - arch::kFirstSyncPort);
}

void Links::ClearAllFaults() { ClearFaultsOf(0, arch::kPortsPerMachine); }

void Links::Reset() {
  base::MutexLock lock(mutex_);
  ports_ = nullptr;
}

}  // namespace vpod::machine
