// poptorch_core.Model: one model of the user on its device.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/poptorch/types.h"
#include "client/python/poptorch/core.h"

namespace vpod::poptorch::python {
namespace {

// Addresses come from tensors that the caller keeps while a call lasts.
using Memory = std::pair<uintptr_t, size_t>;
using NamedMemory = std::tuple<std::string, uintptr_t, size_t>;
using StreamType = std::pair<int, program::Dims>;

std::vector<StreamType> Described(const std::vector<Model::Type>& types) {
  std::vector<StreamType> result;
  for (const Model::Type& type : types) result.emplace_back(type.type, type.dims);
  return result;
}

class CoreModel {
 public:
  CoreModel(const py::object& tape, const py::dict& options, const py::object& optimizer) {
    TapeProgram program{TapeOf(tape), OptionsOf(options), OptimizerOf(optimizer)};
    const py::gil_scoped_release unlocked;
    model_ = Take(Model::Create(std::move(program)));
  }

  const Model& model() const { return *model_; }

  // An exception of `progress`, and Control-C, end the compilation at its next step.
  void Compile(const py::object& progress) {
    const Use use(*this);
    std::optional<py::error_already_set> raised;
    const auto report = [&](absl::string_view step, uint32_t done, uint32_t total) {
      const py::gil_scoped_acquire locked;
      try {
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        if (!progress.is_none()) progress(std::string(step), done, total);
      } catch (py::error_already_set& error) {
        // Exceptions do not pass through the compiler.
        raised.emplace(error);
        return absl::CancelledError("the compilation was interrupted");
      }
      return absl::OkStatus();
    };
    const absl::Status status = [&] {
      const py::gil_scoped_release unlocked;
      return model_->Compile(report);
    }();
    if (raised) throw *raised;
    Check(status);
  }

  void Load(bool ipu_model, std::optional<uint32_t> device_id, bool wait) {
    const Use use(*this);
    std::stop_source stop;
    const DeviceOptions device{
        .ipu_model = ipu_model, .device_id = device_id, .wait = wait, .stopped = stop.get_token()};
    CallInterruptibly([&] { return model_->Load(device); }, [&] { stop.request_stop(); });
  }

  void Detach() {
    const Use use(*this);
    const py::gil_scoped_release unlocked;
    model_->Detach();
  }

  void Run(const std::vector<Memory>& inputs, const std::vector<Memory>& outputs) {
    const Use use(*this);
    std::vector<ConstBytes> from;
    std::vector<MutableBytes> to;
    for (const auto& [address, size] : inputs)
      from.push_back({reinterpret_cast<const void*>(address), size});
    for (const auto& [address, size] : outputs)
      to.push_back({reinterpret_cast<void*>(address), size});
    CallInterruptibly([&] { return model_->Run(from, to); }, [&] { model_->Cancel(); });
  }

  void WriteState(const std::vector<NamedMemory>& state) {
    const Use use(*this);
    std::vector<ConstState> all;
    for (const auto& [name, address, size] : state)
      all.push_back({name, {reinterpret_cast<const void*>(address), size}});
    const absl::Status status = [&] {
      const py::gil_scoped_release unlocked;
      return model_->WriteState(all);
    }();
    Check(status);
  }

  void ReadState(const std::vector<NamedMemory>& state) {
    const Use use(*this);
    std::vector<MutableState> all;
    for (const auto& [name, address, size] : state)
      all.push_back({name, {reinterpret_cast<void*>(address), size}});
    const absl::Status status = [&] {
      const py::gil_scoped_release unlocked;
      return model_->ReadState(all);
    }();
    Check(status);
  }

  void SetHyperParameters(const py::object& optimizer) {
    const Use use(*this);
    const OptimizerOptions options = OptimizerOf(optimizer);
    const absl::Status status = [&] {
      const py::gil_scoped_release unlocked;
      return model_->SetHyperParameters(options);
    }();
    Check(status);
  }

  std::vector<uint32_t> OutputCopies() const {
    std::vector<uint32_t> copies;
    for (size_t i = 0; i < model_->output_types().size(); ++i)
      copies.push_back(model_->output_copies(i));
    return copies;
  }

  py::bytes Executable() { return Take(model_->ExecutableBytes()); }

  bool TakeExecutable(const py::bytes& executable) {
    const Use use(*this);
    const std::string bytes = executable;
    const py::gil_scoped_release unlocked;
    return Take(model_->TakeExecutable(bytes));
  }

  using Times = std::vector<std::vector<std::pair<double, double>>>;
  std::pair<Times, Times> Transfers() const {
    const auto transfers = [&] {
      const py::gil_scoped_release unlocked;
      return model_->PlannedTransfers();
    }();
    Check(transfers.status());
    const auto times = [](const std::vector<std::vector<Transfer>>& streams) {
      Times all;
      for (const std::vector<Transfer>& stream : streams) {
        auto& of_stream = all.emplace_back();
        for (const auto& [begin, end] : stream) of_stream.emplace_back(begin, end);
      }
      return all;
    };
    return {times(transfers->inputs), times(transfers->outputs)};
  }

  py::dict Variables() const {
    py::dict variables;
    for (const auto& [name, type] : model_->Variables())
      variables[py::str(name)] = py::make_tuple(HostType(type.type), type.dims, type.bytes());
    return variables;
  }

 private:
  // One call at a time: calls that take long let other threads of Python run.
  class Use {
   public:
    explicit Use(CoreModel& model) : model_(model) {
      if (model.busy_.exchange(true))
        Check(absl::FailedPreconditionError("another thread uses the model"));
    }
    ~Use() { model_.busy_ = false; }

   private:
    CoreModel& model_;
  };

  // Calls `call`, which Control-C ends by `cancel`. Cancelling a run ends the use of the device.
  template <class Call, class Cancel>
  void CallInterruptibly(const Call& call, const Cancel& cancel) {
    std::future<absl::Status> run = std::async(std::launch::async, call);
    for (;;) {
      {
        const py::gil_scoped_release unlocked;
        if (run.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) break;
      }
      if (PyErr_CheckSignals() == 0) continue;
      cancel();
      {
        const py::gil_scoped_release unlocked;
        run.wait();
      }
      throw py::error_already_set();
    }
    Check(run.get());
  }

  std::unique_ptr<Model> model_;
  std::atomic<bool> busy_ = false;
};

}  // namespace

void DefineModel(py::module_& module) {
  py::class_<CoreModel>(module, "Model", "A model of the user on its device.")
      .def(py::init<const py::object&, const py::dict&, const py::object&>(), py::arg("tape"),
           py::arg("options"), py::arg("optimizer") = py::none(), "Builds the graph of a tape.")
      .def("compile", &CoreModel::Compile, py::arg("progress") = py::none(),
           "Compiles; calls progress(step, done, total) before each step.")
      .def("load", &CoreModel::Load, py::arg("ipu_model"), py::arg("device_id") = py::none(),
           py::arg("wait") = false, "Attaches to a device and loads.")
      .def("detach", &CoreModel::Detach, "Ends the use of the device.")
      .def("run", &CoreModel::Run, py::arg("inputs"), py::arg("outputs"),
           "Runs one batch on memory: lists of (address, bytes).")
      .def("write_state", &CoreModel::WriteState, py::arg("state"),
           "Writes parameters, buffers and other variables: [(name, address, bytes)].")
      .def("read_state", &CoreModel::ReadState, py::arg("state"),
           "Reads them into memory: [(name, address, bytes)].")
      .def("set_hyper_parameters", &CoreModel::SetHyperParameters, py::arg("optimizer"))
      .def("variables", &CoreModel::Variables, "{name: (type, shape, bytes)} of the executable.")
      .def("input_types",
           [](const CoreModel& self) { return Described(self.model().input_types()); })
      .def("output_types",
           [](const CoreModel& self) { return Described(self.model().output_types()); })
      .def_property_readonly("written_inputs",
                             [](const CoreModel& self) { return self.model().written_inputs(); })
      .def_property_readonly("input_copies",
                             [](const CoreModel& self) { return self.model().input_copies(); })
      .def_property_readonly("output_copies", &CoreModel::OutputCopies)
      .def_property_readonly("ipus", [](const CoreModel& self) { return self.model().ipus(); })
      .def("executable", &CoreModel::Executable, "The bytes that take_executable takes.")
      .def("take_executable", &CoreModel::TakeExecutable, py::arg("executable"),
           "Takes an executable in the place of a compilation; False: it is of another compiler.")
      .def("transfers", &CoreModel::Transfers,
           "([[(begin, end)]], [[(begin, end)]]): seconds in a run of one replica of each transfer "
           "of each input and each result of forward.")
      .def_property_readonly("is_compiled",
                             [](const CoreModel& self) { return self.model().is_compiled(); })
      .def_property_readonly("cache_miss",
                             [](const CoreModel& self) { return self.model().cache_miss(); })
      .def_property_readonly("is_loaded",
                             [](const CoreModel& self) { return self.model().is_loaded(); })
      .def("cycles", [](const CoreModel& self) -> std::optional<uint64_t> {
        const auto cycles = self.model().cycles();
        if (!cycles) return std::nullopt;
        return cycles->value();
      });
}

}  // namespace vpod::poptorch::python
