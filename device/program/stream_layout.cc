#include "device/program/stream_layout.h"

namespace vpod::program {

StreamLayout::StreamLayout(const v1::Executable& executable, uint32_t local_replicas)
    : replicas_(local_replicas) {
  for (const v1::Stream& stream : executable.streams()) {
    const uint64_t bytes = TypeOf(stream).bytes();
    places_.push_back({slot_bytes_, bytes, stream.transfers_per_run()});
    const uint64_t total = bytes * stream.transfers_per_run() * local_replicas;
    slot_bytes_ += (total + 63) / 64 * 64;
  }
}

}  // namespace vpod::program
