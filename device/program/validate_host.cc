#include "device/program/validate_host.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// `what` is "variable 'w'"; names are unique among `names`, to which this one is added.
absl::Status CheckName(const std::string& what, const std::string& name,
                       std::set<std::string>& names) {
  if (name.empty()) return Invalid(absl::StrCat(what, ": the name is empty"));
  if (!names.insert(name).second) return Invalid(absl::StrCat(what, ": the name is used twice"));
  return absl::OkStatus();
}

absl::Status CheckIpu(const std::string& what, uint32_t ipu, const v1::Executable& executable) {
  if (ipu < executable.ipus_per_replica()) return absl::OkStatus();
  return Invalid(absl::StrCat(what, ": IPU ", ipu, " is not in the replica, must be 0 to ",
                              executable.ipus_per_replica() - 1));
}

// Checks what the host sees of a variable or a remote buffer that has parts, or lies otherwise
// there; `part` is what a replica has of it.
template <class Viewed>
absl::Status ValidateHostView(const Viewed& viewed, const TensorType& part,
                              const std::string& name) {
  const uint64_t shards = std::max(1u, viewed.shards());
  if (viewed.host_dims().empty() && viewed.host_strides().empty() && shards == 1)
    return absl::OkStatus();
  v1::Tensor view;
  view.set_type(part.type);
  *view.mutable_dims() = viewed.host_dims();
  *view.mutable_strides() = viewed.host_strides();
  const auto wrong = [&](absl::string_view why) {
    return Invalid(absl::StrCat(name, ": what the host sees of it ", why));
  };
  absl::Status status = Check(TypeOf(view));
  status.Update(CheckStrides(view));
  if (!status.ok()) return wrong(absl::StrCat("is wrong: ", status.message()));
  // The view is bounded; the product need not be.
  const auto elements = static_cast<uint64_t>(TypeOf(view).elements());
  if (elements % shards != 0 || elements / shards != static_cast<uint64_t>(part.elements()) ||
      !IsDense(view)) {
    return wrong(shards == 1 ? "must have the elements of its rows, densely packed"
                             : "must have the elements of its parts, densely packed");
  }
  return absl::OkStatus();
}

absl::Status ValidateVariables(const v1::Executable& executable, std::set<std::string>& names) {
  for (const v1::Variable& variable : executable.variables()) {
    const std::string name = absl::StrCat("variable '", variable.name(), "'");
    VPOD_RETURN_IF_ERROR(CheckName(name, variable.name(), names));
    VPOD_RETURN_IF_ERROR(CheckIpu(name, variable.ipu(), executable));
    const auto& tensors = executable.ipus(static_cast<int>(variable.ipu())).tensors();
    if (variable.tensor() >= static_cast<uint32_t>(tensors.size())) {
      return Invalid(absl::StrCat(name, ": tensor ", variable.tensor(), " of IPU ", variable.ipu(),
                                  " does not exist (there are ", tensors.size(), ")"));
    }
    const v1::Tensor& tensor = tensors[static_cast<int>(variable.tensor())];
    if (tensor.wide_accumulator()) return Invalid(absl::StrCat(name, " is a wide accumulator"));
    if (!IsDense(tensor)) return Invalid(absl::StrCat(name, " is not densely packed"));
    if (TypeOf(tensor).empty()) return Invalid(absl::StrCat(name, " has no elements"));
    if (variable.shards() <= 1 &&
        !(variable.host_dims().empty() && variable.host_strides().empty()))
      return Invalid(absl::StrCat(name, " has no parts, but dimensions of a whole"));
    if (variable.shards() > 1 && tensor.strides_size() > 0)
      return Invalid(absl::StrCat(name, " has parts that are not row-major"));
    VPOD_RETURN_IF_ERROR(ValidateHostView(variable, TypeOf(tensor), name));
  }
  return absl::OkStatus();
}

absl::Status ValidateRemoteBuffers(const v1::Ipu& ipu, std::set<std::string>& names,
                                   const Limits& limits) {
  if (static_cast<uint32_t>(ipu.remote_buffers_size()) > limits.remote_buffers)
    return Invalid(absl::StrCat("more than ", limits.remote_buffers, " remote buffers"));
  uint64_t bytes = 0;
  for (const v1::RemoteBuffer& buffer : ipu.remote_buffers()) {
    const std::string name = absl::StrCat("remote buffer '", buffer.name(), "'");
    VPOD_RETURN_IF_ERROR(CheckName(name, buffer.name(), names));
    const TensorType row = TypeOf(buffer);
    const absl::Status status = Check(row);
    if (!status.ok()) return Invalid(absl::StrCat(name, ": ", status.message()));
    if (row.bytes() < 1 || row.bytes() > arch::kRemoteTransferLimit.value()) {
      return Invalid(absl::StrCat(name, ": a row has ", row.bytes(), " bytes, must be 1 to ",
                                  arch::kRemoteTransferLimit.value()));
    }
    if (buffer.rows() < 1) return Invalid(absl::StrCat(name, " has no rows, must be 1 or more"));
    // Below 2^27 elements times 2^32 rows: no overflow.
    VPOD_RETURN_IF_ERROR(
        ValidateHostView(buffer, {row.type, {row.elements() * buffer.rows()}}, name));
    if (buffer.wide_accumulator() && !(buffer.scratch() && buffer.type() == v1::FLOAT32))
      return Invalid(absl::StrCat(name,
                                  " has wide accumulators, which only the program itself may "
                                  "use, as float32"));
    // Below 2^27 bytes times 2^32 rows: no overflow.
    bytes += (row.bytes() * buffer.rows() + 63) / 64 * 64;
    if (bytes > limits.remote_bytes) {
      return Invalid(absl::StrCat(name, ": remote buffers exceed ", limits.remote_bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateStreams(const v1::Executable& executable, const Limits& limits) {
  std::set<std::string> names;
  uint64_t bytes = 0;
  for (const v1::Stream& stream : executable.streams()) {
    const TensorType type = TypeOf(stream);
    const absl::Status status = Check(type);
    const std::string name = absl::StrCat("stream '", stream.name(), "'");
    if (!status.ok()) return Invalid(absl::StrCat(name, ": ", status.message()));
    VPOD_RETURN_IF_ERROR(CheckName(name, stream.name(), names));
    VPOD_RETURN_IF_ERROR(CheckIpu(name, stream.ipu(), executable));
    if (type.empty()) {
      return Invalid(
          absl::StrCat("stream '", stream.name(), "' of ", type.ToString(), " moves no elements"));
    }
    if (stream.tiles() > arch::kTilesPerIpu) {
      return Invalid(absl::StrCat("stream '", stream.name(), "' takes ", stream.tiles(),
                                  " tiles, an IPU has ", arch::kTilesPerIpu));
    }
    const uint64_t transfers = stream.transfers_per_run();
    if (transfers > 0 && type.bytes() <= limits.stream_bytes / transfers) {
      bytes += type.bytes() * transfers;
    } else if (transfers > 0) {
      bytes = limits.stream_bytes + 1;
    }
    if (bytes > limits.stream_bytes) {
      return Invalid(absl::StrCat("streams of one run exceed ", limits.stream_bytes,
                                  " bytes in all: '", stream.name(), "' moves ", type.bytes(),
                                  " bytes ", transfers, transfers == 1 ? " time" : " times"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateState(const v1::Executable& executable, const Limits& limits) {
  std::set<std::string> names;
  VPOD_RETURN_IF_ERROR(ValidateVariables(executable, names));
  for (int ipu = 0; ipu < executable.ipus_size(); ++ipu) {
    const absl::Status status = ValidateRemoteBuffers(executable.ipus(ipu), names, limits);
    if (!status.ok()) return Invalid(absl::StrCat("IPU ", ipu, ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
