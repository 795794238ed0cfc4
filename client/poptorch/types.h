// Types of elements: PyTorch's on the host and those of the device, which has none of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/poptorch/program.h"
#include "device/program/tensor_type.h"

namespace vpod::poptorch {

// The type that a value of the tape has on the device: int64 becomes int32 and float64 float32.
// InvalidArgument names a type that no device has.
absl::StatusOr<program::TensorType> DeviceType(const TapeValue& value);
// PyTorch's number (c10::ScalarType) of a type of the device; -1 for unsigned integers of 16 and 32
// bits, which PyTorch does not have.
int HostType(program::v1::DataType type);
// Bytes of an element on the host; 0 for types that no device has.
size_t HostElementBytes(int type);
// Bytes of a value on the host.
size_t HostBytes(const TapeValue& value);

// Writes elements of a host type to `to` as elements of the type that they have on the device.
// InvalidArgument says what `what` is, such as "input 'labels'", and names an int64 that int32
// cannot hold, with its index; then nothing was written.
absl::Status ToDevice(absl::string_view what, int host_type, absl::string_view from, std::byte* to);
// The other way: integers and floats become wider where the host's type is.
void ToHost(int host_type, absl::string_view from, void* to);

}  // namespace vpod::poptorch
