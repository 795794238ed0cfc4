// A PyTorch model on its device: built from a tape, compiled, loaded and run on memory of the
// caller.
//
//   VPOD_ASSIGN_OR_RETURN(auto model, Model::Create(std::move(program)));
//   VPOD_RETURN_IF_ERROR(model->Compile());
//   VPOD_RETURN_IF_ERROR(model->Load({.ipu_model = true}));
//   VPOD_RETURN_IF_ERROR(model->WriteState(weights));
//   VPOD_RETURN_IF_ERROR(model->Run(inputs, outputs));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/compiler/compiler.h"
#include "client/poptorch/build.h"
#include "client/poptorch/options.h"
#include "client/poptorch/program.h"
#include "client/poptorch/transfers.h"
#include "client/session/session.h"

namespace vpod::poptorch {

struct DeviceOptions {
  bool ipu_model = false;  // in this process; otherwise IPUs of poprun or the active partition
  std::optional<uint32_t> device_id;  // of the IPUs to attach to; none: a free one
  bool wait = false;                  // for IPUs that others use
  std::stop_token stopped;            // ends the wait
};

// Memory of the caller, contiguous and row-major.
struct ConstBytes {
  const void* data = nullptr;
  size_t size = 0;
};
struct MutableBytes {
  void* data = nullptr;
  size_t size = 0;
};
// A parameter or buffer in the host's type, or another variable of the executable, such as the
// state of the optimiser, as it is.
struct ConstState {
  std::string name;
  ConstBytes bytes;
};
struct MutableState {
  std::string name;
  MutableBytes bytes;
};

// Calls come from one thread at a time; Cancel may come from any.
class Model {
 public:
  // Builds the graph. Errors are BuildGraph's and CompileOptionsFor's.
  static absl::StatusOr<std::unique_ptr<Model>> Create(TapeProgram program);

  // One micro-batch of an input or output on the host; outputs have the types of the device.
  using Type = TapeValue;
  const std::vector<Type>& input_types() const { return input_types_; }
  // The results of forward, then the final values of the inputs that forward writes, then the
  // anchors of the options.
  const std::vector<Type>& output_types() const { return output_types_; }
  // The places of the inputs that forward writes.
  const std::vector<size_t>& written_inputs() const { return written_inputs_; }
  // How many micro-batches, of all replicas of this process, a call takes, and returns of an
  // output.
  uint32_t input_copies() const;
  uint32_t output_copies(size_t output) const;
  uint32_t ipus() const { return options_.ipus_per_replica * program_.options.replicas; }

  // Errors are Compile's of client/compiler, and those of `progress`. Returns at once if it is
  // compiled.
  absl::Status Compile(const compiler::Progress& progress = {});
  bool is_compiled() const { return compiled_.has_value(); }
  // Which parts of its key differ from that of the nearest file, if the executable cache had files
  // but none for the model; otherwise empty.
  const std::string& cache_miss() const { return cache_miss_; }
  // The executable for TakeExecutable of an equal model. FailedPrecondition: the model is not
  // compiled, or does not fit the memory of an IPU.
  absl::StatusOr<std::string> ExecutableBytes() const;
  // Takes an executable in the place of a compilation. False: it is of another version of the
  // compiler, or of another model, and the model is to be compiled. InvalidArgument: the bytes are
  // none.
  absl::StatusOr<bool> TakeExecutable(absl::string_view bytes);
  // Attaches to a device and loads the program. State and hyper-parameters are then those of the
  // program; the caller writes the state that it has. FailedPrecondition: not compiled, or loaded.
  absl::Status Load(const DeviceOptions& device);
  bool is_loaded() const { return session_ != nullptr; }
  // Ends the use of the device; what its variables have is lost.
  void Detach() { session_.reset(); }

  // Runs the program on one batch. Each input has input_copies() micro-batches, ordered by device
  // iteration, accumulation step and replica, and each output has output_copies() of it, in the
  // same order. InvalidArgument: other sizes, data that the device's type cannot hold, or an error
  // of the program, after which the next call may come.
  absl::Status Run(absl::Span<const ConstBytes> inputs, absl::Span<const MutableBytes> outputs);
  // Ends a run that blocks, and with it the use of the device.
  void Cancel();
  // Of the last run, on the slowest IPU; nothing before the first run.
  std::optional<base::Cycles> cycles() const { return cycles_; }
  // The transfers of one run, by the model of time, in seconds of the last device's clock: of the
  // inputs, and of the results of forward. FailedPrecondition: not compiled.
  struct Transfers {
    std::vector<std::vector<Transfer>> inputs, outputs;  // an input that is not read has none
  };
  absl::StatusOr<Transfers> PlannedTransfers() const;

  // State that the program does not use keeps what the host has: it is passed over. NotFound names
  // anything else that the executable does not have.
  absl::Status WriteState(absl::Span<const ConstState> state);
  // The same from the first replica; passed-over memory stays as it is.
  absl::Status ReadState(absl::Span<const MutableState> state);
  // The names, types and shapes of all variables of the executable but for the numbers of groups of
  // replicas, which do not change.
  std::map<std::string, program::TensorType> Variables() const;
  // For the following calls. The groups are those that the model was compiled with, by number.
  absl::Status SetHyperParameters(const OptimizerOptions& optimizer);

 private:
  Model(TapeProgram program, BuiltGraph built, compiler::CompileOptions options);

  absl::Status DescribeStreams();
  absl::Status CheckLoaded() const;
  // The host's type of a parameter or buffer; null for other variables.
  const TapeValue* HostTypeOf(const std::string& name) const;
  absl::Status WriteInput(size_t input, ConstBytes bytes);
  absl::Status ReadOutput(const std::string& name, size_t output, MutableBytes bytes);
  // The variable with the name, or null for state that the program does not use.
  absl::StatusOr<const program::HostTensor*> FindState(const std::string& name) const;
  absl::Status CheckSize(const std::string& name, size_t size,
                         const program::HostTensor& variable) const;
  // Whether the device has the state in a type of fewer bits than the host.
  bool IsNarrowed(const std::string& name, const program::HostTensor& variable) const;
  absl::Status WriteSeed();
  // Tells replicas which groups they are in.
  absl::Status WriteReplicaGroups();

  const TapeProgram program_;
  const BuiltGraph built_;
  const compiler::CompileOptions options_;
  std::vector<Type> input_types_, output_types_;
  std::vector<std::string> output_names_;
  std::vector<OutputReturn> output_returns_;
  std::vector<size_t> written_inputs_;
  std::map<std::string, TapeValue> state_;  // the host's types of parameters and buffers, by name
  std::optional<compiler::Compiled> compiled_;
  std::string cache_miss_;
  std::unique_ptr<session::Session> session_;
  std::optional<base::Cycles> cycles_;
  std::optional<double> clock_hz_;  // of the last device
};

}  // namespace vpod::poptorch
