// Runs a compiled model on a device: streams by name, variables by name, programs by name. A
// session is for the process that opened it; in a child that is forked from it, which has neither
// the threads nor the connections of a device, all calls fail.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/compiler/compiler.h"
#include "client/engine_options/engine_options.h"
#include "client/session/device.h"
#include "client/session/element_type.h"
#include "device/program/executable.h"
#include "device/program/stream_layout.h"

namespace vpod::profile {
class Profiler;
}

namespace vpod::session {

struct LoadFileOptions {
  // Variables that the file lacks keep their values.
  bool allow_missing = false;
};

// A variable, and host memory for its value, row-major in the variable's type, that a call reads
// into or writes from. The memory must outlive the call.
struct ReadInto {
  absl::string_view variable;
  void* data = nullptr;
  uint64_t bytes = 0;
};
struct WriteFrom {
  absl::string_view variable;
  const void* data = nullptr;
  uint64_t bytes = 0;
};

class Session {
 public:
  // In a forked child nothing ends: the device is the parent's.
  ~Session();
  // Loads the executable and writes the initial values. Engine options may change what `options`
  // leave as it is, and ask for profiles (client/engine_options); without `engine`, they are those
  // of the environment. InvalidArgument: the executable is for another number of replicas than the
  // job has. FailedPrecondition: the device is of the process that this one was forked from.
  // Cancelled: `vpod plan` runs the program, which is to end; it has the executable. The device
  // stays the caller's if it has not taken the executable.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::unique_ptr<Device>&& device,
                                                         const compiler::Compiled& compiled,
                                                         const LoadOptions& options = {},
                                                         std::optional<EngineOptions> engine = {});

  Device& device() { return *device_; }

  // All micro-batches of a stream that one run moves for one local replica, in order: transfers ×
  // elements. T is the type of the stream's elements, or an unsigned integer of their size for
  // their bits (element_type.h). NotFound names the streams there are.
  template <class T>
  absl::StatusOr<absl::Span<T>> Stream(absl::string_view name, uint32_t replica,
                                       uint32_t slot = 0) {
    absl::StatusOr<absl::Span<std::byte>> bytes =
        StreamOf(name, replica, slot, ElementType::Of<T>());
    if (!bytes.ok()) return bytes.status();
    return absl::Span<T>(reinterpret_cast<T*>(bytes->data()), bytes->size() / sizeof(T));
  }
  // The same as bytes, whatever the type.
  absl::StatusOr<absl::Span<std::byte>> StreamBytes(absl::string_view name, uint32_t replica,
                                                    uint32_t slot = 0) {
    return StreamOf(name, replica, slot, ElementType::Any());
  }

  // Fills such a stream from host data of 64 bits, narrowed by the rule of narrowing.h.
  // InvalidArgument says what of the data the stream does not take; then nothing was written.
  absl::Status WriteStream(absl::string_view name, uint32_t replica,
                           absl::Span<const int64_t> values, uint32_t slot = 0);
  absl::Status WriteStream(absl::string_view name, uint32_t replica,
                           absl::Span<const double> values, uint32_t slot = 0);

  // Runs a program once on the data of a slot; blocks. InvalidArgument and OutOfRange are errors of
  // the program or its data; they name the operation, the value and the replica. The run has then
  // failed on all instances that meet in it, variables are as they were at the failure, and the
  // next run may begin. Aborted: the job has failed; so it does for errors of the program, too, if
  // its runs span agents.
  absl::StatusOr<base::Cycles> Run(absl::string_view program, uint32_t slot = 0);

  // Variables as float32, whatever their type; integers above 2^24 are rounded. `replica` is local.
  // InvalidArgument names a value that an integer or BOOL variable does not take.
  absl::StatusOr<std::vector<float>> ReadFloats(absl::string_view variable, uint32_t replica = 0);
  absl::Status WriteFloats(absl::string_view variable, absl::Span<const float> values);
  // Sets a variable from host data of 64 bits, as WriteStream does.
  absl::Status WriteVariable(absl::string_view name, absl::Span<const int64_t> values);
  absl::Status WriteVariable(absl::string_view name, absl::Span<const double> values);
  // The bytes of a variable, row-major in its type. Variables that replicas share out among
  // them are read and written as wholes. InvalidArgument: another number of bytes.
  absl::StatusOr<std::string> ReadBytes(absl::string_view variable, uint32_t replica = 0);
  absl::Status WriteBytes(absl::string_view variable, absl::string_view bytes);
  // Many variables in one call, as ReadBytes and WriteBytes do it for one; WriteState writes to all
  // local replicas, or to one. InvalidArgument and NotFound name the first variable that does not
  // fit, or that replicas share out and one cannot write alone; then none was read or written.
  absl::Status ReadState(absl::Span<const ReadInto> variables, uint32_t replica = 0);
  absl::Status WriteState(absl::Span<const WriteFrom> variables,
                          std::optional<uint32_t> replica = std::nullopt);
  // Writes the variables of replica 0 to an .npz file. Errors are WriteNpz's (npz.h).
  absl::Status Save(const std::string& path);
  // Sets the variables from such a file on all replicas. A float32 array may set a float16
  // variable, which rounds it. Arrays of an optimiser or of random numbers that the programs do not
  // have are passed over, and such variables that the file lacks keep their values.
  // InvalidArgument names any other array that does not match a variable in name, type and shape,
  // and the first variables that the file lacks; then none was set.
  absl::Status Load(const std::string& path, const LoadFileOptions& options = {});
  // Sets the learning rate of following weight updates: of the variables without a group (0), or of
  // a parameter group.
  absl::Status SetLearningRate(float rate, size_t group = 0);
  // Sets all hyper-parameters of following weight updates. InvalidArgument: no program trains such
  // variables, or it was compiled for another optimiser, with other flags such as `nesterov`, or
  // without the momentum that is asked for.
  absl::Status SetHyperParameters(const compiler::Optimizer& optimizer, size_t group = 0);

 private:
  Session(std::unique_ptr<Device> device, std::shared_ptr<const program::Executable> executable);
  absl::StatusOr<absl::Span<std::byte>> StreamOf(absl::string_view name, uint32_t replica,
                                                 uint32_t slot, ElementType element);
  template <class T>
  absl::Status WriteNarrowed(absl::string_view name, uint32_t replica, absl::Span<const T> values,
                             uint32_t slot);
  template <class T>
  absl::Status WriteNarrowed(absl::string_view variable, absl::Span<const T> values);
  // The variables with a group's hyper-parameters, of which each IPU may have one.
  std::vector<std::string> HyperParameterVariables(size_t group) const;
  // An instruction that updates variables, and its IPU.
  struct CompiledUpdate {
    const program::v1::Instruction* instruction;
    uint32_t ipu;
  };
  // Returns one that updates a variable of the group.
  absl::StatusOr<CompiledUpdate> FindUpdate(size_t group) const;

  // Whether each of them names a variable and has its number of bytes.
  template <class Variables>
  absl::Status CheckState(const Variables& variables) const;

  // FailedPrecondition in a process that was forked from the one that opened the session.
  absl::Status CheckProcess() const;

  std::unique_ptr<Device> device_;
  const std::shared_ptr<const program::Executable> executable_;
  const program::StreamLayout layout_;
  std::unique_ptr<profile::Profiler> profiler_;  // null if no profiles are asked for
};

}  // namespace vpod::session
