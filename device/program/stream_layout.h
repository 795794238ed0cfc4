// Where the data of streams lie in the buffer that client and agent share. A buffer has two slots,
// so that the host can fill one while the device works on the other; client and agent compute the
// same layout from the executable.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program/executable.h"

namespace vpod::program {

inline constexpr uint32_t kStreamSlots = 2;

class StreamLayout {
 public:
  StreamLayout() = default;
  StreamLayout(const v1::Executable& executable, uint32_t local_replicas);

  // First byte of transfer `transfer` of a stream of a local replica, counted from the beginning of
  // the slot.
  uint64_t Offset(uint32_t stream, uint32_t replica, uint32_t transfer) const {
    const Place& place = places_[stream];
    return place.offset + (uint64_t{replica} * place.transfers + transfer) * place.transfer_bytes;
  }
  uint64_t TransferBytes(uint32_t stream) const { return places_[stream].transfer_bytes; }
  uint32_t Transfers(uint32_t stream) const { return places_[stream].transfers; }
  // Bytes of a stream for all local replicas, replica after replica.
  uint64_t StreamBytes(uint32_t stream) const {
    return places_[stream].transfer_bytes * places_[stream].transfers * replicas_;
  }
  uint64_t SlotBytes() const { return slot_bytes_; }
  uint64_t TotalBytes() const { return slot_bytes_ * kStreamSlots; }
  uint32_t replicas() const { return replicas_; }

 private:
  struct Place {
    uint64_t offset;
    uint64_t transfer_bytes;
    uint32_t transfers;
  };
  std::vector<Place> places_;
  uint64_t slot_bytes_ = 0;
  uint32_t replicas_ = 0;
};

}  // namespace vpod::program
