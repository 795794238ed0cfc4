// Devices with a fault, to show that tests of devices find it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/session/device.h"
#include "device/program/executable.h"
#include "device/program/stream_layout.h"

namespace vpod::tools {

// Hands every call to a sound device. Derived classes add the fault.
class ForwardingDevice : public session::Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<session::Device> sound) : sound_(std::move(sound)) {}

  uint32_t local_replicas() const override { return sound_->local_replicas(); }
  double clock_hz() const override { return sound_->clock_hz(); }
  session::JobPart job_part() const override { return sound_->job_part(); }
  bool is_model() const override { return sound_->is_model(); }
  std::string name() const override { return sound_->name(); }
  absl::Status Load(std::shared_ptr<const program::Executable> executable,
                    const session::LoadOptions& options) override {
    return sound_->Load(std::move(executable), options);
  }
  std::byte* Slot(uint32_t slot) override { return sound_->Slot(slot); }
  absl::StatusOr<base::Cycles> Run(uint32_t program, uint32_t slot) override {
    return sound_->Run(program, slot);
  }
  void Cancel() override { sound_->Cancel(); }
  absl::Status WriteVariable(absl::string_view name, absl::string_view bytes,
                             std::optional<uint32_t> replica) override {
    return sound_->WriteVariable(name, bytes, replica);
  }
  absl::StatusOr<std::string> ReadVariable(absl::string_view name, uint32_t replica) override {
    return sound_->ReadVariable(name, replica);
  }
  absl::StatusOr<std::vector<base::Cycles>> Counters() override { return sound_->Counters(); }

 private:
  const std::unique_ptr<session::Device> sound_;
};

// From a given run on, each run flips a bit in the last byte that IPU 0 sent on the last stream to
// the host.
class FaultyDevice : public ForwardingDevice {
 public:
  // Runs are counted from 0.
  FaultyDevice(std::unique_ptr<session::Device> sound, int first_faulty_run)
      : ForwardingDevice(std::move(sound)), runs_until_fault_(first_faulty_run) {}

  absl::Status Load(std::shared_ptr<const program::Executable> executable,
                    const session::LoadOptions& options) override {
    const program::v1::Executable& text = executable->proto();
    const program::StreamLayout layout(text, local_replicas());
    for (int i = 0; i < text.streams_size(); ++i) {
      if (text.streams(i).to_device()) continue;
      const auto stream = static_cast<uint32_t>(i);
      faulty_byte_ = layout.Offset(stream, 0, layout.Transfers(stream)) - 1;
    }
    return ForwardingDevice::Load(std::move(executable), options);
  }

  absl::StatusOr<base::Cycles> Run(uint32_t program, uint32_t slot) override {
    auto cycles = ForwardingDevice::Run(program, slot);
    if (--runs_until_fault_ < 0) Slot(slot)[faulty_byte_] ^= std::byte{0x10};
    return cycles;
  }

 private:
  int runs_until_fault_;
  uint64_t faulty_byte_ = 0;  // in the slot
};

}  // namespace vpod::tools
