// vpod.Session and the devices that it runs on.
#include "client/session/session.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/planned_program.h"
#include "client/popdist/context.hpp"
#include "client/python/vpod/bindings.h"
#include "client/python/vpod/executable.h"
#include "client/python/vpod/host_arrays.h"
#include "client/session/ipu_model.h"
#include "client/session/leave_for_plan.h"
#include "client/session/open.h"
#include "device/arch/hardware.h"
#include "device/program/ops/collective.h"

namespace vpod::python {
namespace {

using program::TensorType;

// IPUs until a session takes them.
struct Device {
  std::unique_ptr<session::Device> device;
  uint32_t ipus_per_replica = 1;
};

void CheckIpus(const Executable& executable, const Device& device) {
  const uint32_t ipus = executable.compiled.executable->ipus_per_replica();
  if (ipus == device.ipus_per_replica) return;
  throw py::value_error(absl::StrCat("the executable has ", ipus, ipus == 1 ? " IPU" : " IPUs",
                                     " per replica, the device ", device.ipus_per_replica,
                                     ": open it with ipus_per_replica=", ipus));
}

Device IpuModel(int64_t replicas, int64_t ipus_per_replica, int compute_threads) {
  const session::IpuModelOptions options{
      .replicas = Count("replicas", replicas, 1, arch::kMaxIpusPerPod),
      .ipus_per_replica = Count("ipus_per_replica", ipus_per_replica, 1, arch::kMaxIpusPerReplica),
      .compute_threads = compute_threads};
  const py::gil_scoped_release unlocked;
  return {Take(session::CreateIpuModel(options)), options.ipus_per_replica};
}

Device Attach(int64_t replicas, int64_t ipus_per_replica) {
  const session::OpenOptions options{
      .replicas = Count("replicas", replicas, 1, arch::kMaxIpusPerPod),
      .ipus_per_replica = Count("ipus_per_replica", ipus_per_replica, 1, arch::kMaxIpusPerReplica)};
  const py::gil_scoped_release unlocked;
  return {TakeFromDevice(session::AttachDevice(options)), options.ipus_per_replica};
}

Device Open(const Executable& executable) {
  const py::gil_scoped_release unlocked;
  const program::Executable& compiled = *executable.compiled.executable;
  const uint32_t ipus = compiled.ipus_per_replica();
  // If it attached and left again, the others would see a lost instance and not the reason.
  if (popdist::isPopdistEnvSet() && !compiler::IsPlannedProgram())
    Check(program::CheckTotalReplicas(compiled.proto(), popdist::getNumTotalReplicas()));
  return {TakeFromDevice(session::OpenDevice(
              {.replicas = executable.total_replicas, .ipus_per_replica = ipus})),
          ipus};
}

// Ends a program that `vpod plan` runs: `finally` blocks run, and nothing is said.
[[noreturn]] void EndPlannedProgram(const program::Executable& executable) {
  const absl::Status left = session::LeaveForPlan(executable);
  if (!absl::IsCancelled(left)) Check(left);
  PyErr_SetObject(PyExc_SystemExit, py::int_(0).ptr());
  throw py::error_already_set();
}

class Session {
 public:
  Session(const Executable& executable, Device* device)
      : executable_(executable.compiled.executable) {
    Device opened;
    if (device == nullptr) {
      opened = Open(executable);
      device = &opened;
    }
    if (device->device == nullptr) {
      throw Error(
          "the device was given to a session before; open another with vpod.ipu_model or "
          "vpod.attach");
    }
    CheckIpus(executable, *device);
    if (compiler::IsPlannedProgram()) EndPlannedProgram(*executable_);
    session_ = TakeFromDevice([&] {
      const py::gil_scoped_release unlocked;
      auto session = session::Session::Create(std::move(device->device), executable.compiled);
      if (!session.ok()) opened.device.reset();  // a device that was passed in remains the caller's
      return session;
    }());
  }

  void Close() {
    if (session_ == nullptr) return;
    const Use use(*this);
    const py::gil_scoped_release unlocked;
    session_.reset();
  }

  py::dict Run(const std::string& program, const py::dict& inputs) {
    const Use use(*this);
    const uint32_t number = Take(executable_->FindProgram(program));
    WriteInputs(number, inputs);
    RunInterruptibly(program);
    py::dict outputs;
    for (uint32_t stream : executable_->streams(number)) {
      const auto& declared = executable_->proto().streams(static_cast<int>(stream));
      if (!declared.to_device()) outputs[py::str(declared.name())] = ReadStream(stream, number);
    }
    return outputs;
  }

  py::dict Variables() const { return VariablesOf(*executable_); }

  uint32_t LocalReplicas() {
    const Use use(*this);
    return session_->device().local_replicas();
  }

  py::array Read(const std::string& name, int64_t replica_number) {
    const Use use(*this);
    // Replicas of the job's other instances cannot be read here.
    const uint32_t replica =
        Count("replica", replica_number, 0, session_->device().local_replicas() - 1);
    const TensorType& type = Take(executable_->FindVariable(name))->host_type();
    const std::string bytes = [&] {
      const py::gil_scoped_release unlocked;
      return TakeFromDevice(session_->ReadBytes(name, replica));
    }();
    py::array array(NumpyType(type.type), type.dims);
    std::memcpy(array.mutable_data(), bytes.data(), bytes.size());
    return array;
  }

  void Write(const std::string& name, const py::object& values) {
    const Use use(*this);
    const TensorType& type = Take(executable_->FindVariable(name))->host_type();
    const py::array array = ArrayOf(values, name);
    if (DimsOf(array) != type.dims) {
      throw py::value_error(absl::StrCat("'", name, "' takes ", Described(type.dims), ", and not ",
                                         Described(DimsOf(array))));
    }
    const py::array narrow = Narrowed(array, type.type, absl::StrCat("variable '", name, "'"));
    const absl::string_view bytes(static_cast<const char*>(narrow.data()),
                                  static_cast<size_t>(narrow.nbytes()));
    const py::gil_scoped_release unlocked;
    CheckDevice(session_->WriteBytes(name, bytes));
  }

  void Save(const py::object& to) {
    const std::string path = PathOf(to);
    const Use use(*this);
    const py::gil_scoped_release unlocked;
    CheckDevice(session_->Save(path));
  }
  void Load(const py::object& from, bool allow_missing) {
    const std::string path = PathOf(from);
    const Use use(*this);
    const py::gil_scoped_release unlocked;
    Check(session_->Load(path, {.allow_missing = allow_missing}));
  }
  void SetLearningRate(float rate, int64_t group_number) {
    const uint32_t group = Count("group", group_number);
    const Use use(*this);
    const py::gil_scoped_release unlocked;
    Check(session_->SetLearningRate(rate, group));
  }
  void SetHyperParameters(const compiler::Optimizer& optimizer, int64_t group_number) {
    const uint32_t group = Count("group", group_number);
    const Use use(*this);
    const py::gil_scoped_release unlocked;
    Check(session_->SetHyperParameters(optimizer, group));
  }

 private:
  // One call at a time: those that take long let other threads of Python run.
  class Use {
   public:
    explicit Use(Session& session) : session_(session) {
      if (session.session_ == nullptr) throw Error("the session is closed");
      if (session.busy_.exchange(true)) throw Error("another thread uses the session");
    }
    ~Use() { session_.busy_ = false; }

   private:
    Session& session_;
  };

  StreamShape ShapeOf(uint32_t stream, uint32_t program) const {
    const auto& declared = executable_->proto().streams(static_cast<int>(stream));
    uint64_t transfers = 0;
    program::ForEachInstruction(executable_->proto().ipus(static_cast<int>(declared.ipu())),
                                executable_->EntryOf(program, declared.ipu()),
                                [&](const program::v1::Instruction& instruction, uint64_t times) {
                                  if (program::StreamOf(instruction) == stream) transfers += times;
                                });
    return {program::TypeOf(declared), session_->device().local_replicas(),
            static_cast<int64_t>(transfers)};
  }

  // The bytes of a local replica's stream in one run of the program.
  absl::Span<uint8_t> Bytes(uint32_t stream, const StreamShape& shape, uint32_t replica) const {
    const auto& declared = executable_->proto().streams(static_cast<int>(stream));
    const auto bytes = static_cast<size_t>(shape.transfers) * shape.type.bytes();
    const absl::Span<std::byte> all = Take(session_->StreamBytes(declared.name(), replica));
    return {reinterpret_cast<uint8_t*>(all.data()), bytes};
  }

  // Nothing is written unless all inputs are there and have their shapes.
  void WriteInputs(uint32_t program, const py::dict& inputs) {
    std::map<std::string, uint32_t> streams;
    for (uint32_t stream : executable_->streams(program)) {
      const auto& declared = executable_->proto().streams(static_cast<int>(stream));
      if (declared.to_device()) streams[declared.name()] = stream;
    }
    const auto names = [&] {
      return streams.empty() ? std::string("none")
                             : absl::StrJoin(streams, ", ", [](std::string* out, const auto& each) {
                                 absl::StrAppend(out, "'", each.first, "'");
                               });
    };
    std::map<uint32_t, py::array> arrays;
    for (const auto& [key, values] : inputs) {
      const auto name = py::str(key).cast<std::string>();
      const auto found = streams.find(name);
      if (found == streams.end()) {
        throw py::value_error(
            absl::StrCat("the program has no input '", name, "'; there are: ", names()));
      }
      const py::array array = ArrayOf(py::reinterpret_borrow<py::object>(values), name);
      const StreamShape shape = ShapeOf(found->second, program);
      if (DimsOf(array) != shape.Whole() && DimsOf(array) != shape.Short()) {
        throw py::value_error(absl::StrCat("input '", name, "' takes ", Described(shape.Short()),
                                           shape.Explanation(), ", and not ",
                                           Described(DimsOf(array))));
      }
      arrays.emplace(found->second, array);
    }
    for (const auto& [name, stream] : streams) {
      if (!arrays.contains(stream))
        throw py::value_error(absl::StrCat("input '", name, "' is missing; there are: ", names()));
    }
    for (const auto& [stream, array] : arrays) WriteStream(stream, program, array);
  }

  void WriteStream(uint32_t stream, uint32_t program, const py::array& array) {
    const StreamShape shape = ShapeOf(stream, program);
    const auto& declared = executable_->proto().streams(static_cast<int>(stream));
    const py::array narrow =
        Narrowed(array, shape.type.type, absl::StrCat("stream '", declared.name(), "'"));
    const auto* from = static_cast<const uint8_t*>(narrow.data());
    for (uint32_t replica = 0; replica < shape.replicas; ++replica) {
      const absl::Span<uint8_t> to = Bytes(stream, shape, replica);
      std::memcpy(to.data(), from, to.size());
      from += to.size();
    }
  }

  py::array ReadStream(uint32_t stream, uint32_t program) {
    const StreamShape shape = ShapeOf(stream, program);
    py::array array(NumpyType(shape.type.type), shape.Short());
    auto* to = static_cast<uint8_t*>(array.mutable_data());
    for (uint32_t replica = 0; replica < shape.replicas; ++replica) {
      const absl::Span<uint8_t> from = Bytes(stream, shape, replica);
      std::memcpy(to, from.data(), from.size());
      to += from.size();
    }
    return array;
  }

  // Control-C ends the run, and with it the session's use of its device.
  void RunInterruptibly(const std::string& program) {
    std::future<absl::Status> run =
        std::async(std::launch::async, [&] { return session_->Run(program).status(); });
    for (;;) {
      {
        const py::gil_scoped_release unlocked;
        if (run.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) break;
      }
      if (PyErr_CheckSignals() == 0) continue;
      session_->device().Cancel();
      {
        const py::gil_scoped_release unlocked;
        run.wait();
      }
      throw py::error_already_set();
    }
    CheckDevice(run.get());
  }

  const std::shared_ptr<const program::Executable> executable_;
  std::unique_ptr<session::Session> session_;
  std::atomic<bool> busy_ = false;
};

}  // namespace

void DefineSession(py::module_& module) {
  py::class_<Device>(module, "Device", "IPUs until a session takes them.");
  module.def("ipu_model", IpuModel, py::arg("replicas") = 1, py::arg("ipus_per_replica") = 1,
             py::arg("compute_threads") = 0, "Emulated IPUs in this process, without a POD.");
  module.def("attach", Attach, py::arg("replicas") = 1, py::arg("ipus_per_replica") = 1,
             "The IPUs that poprun gave, or free ones of the active partition.");
  py::class_<Session>(module, "Session", "A compiled model on its device.")
      .def(py::init<const Executable&, Device*>(), py::arg("executable"),
           py::arg("device") = py::none(),
           "On the IPUs that poprun gave to this process, or on the IPUModel, unless given.")
      .def_property_readonly("local_replicas", &Session::LocalReplicas,
                             "How many replicas of the job this process has.")
      .def_property_readonly("variables", &Session::Variables, "(shape, dtype) by name.")
      .def_property_readonly(
          "replica_offset",
          [](const Session&) -> uint32_t {
            return popdist::isPopdistEnvSet()
                       ? static_cast<uint32_t>(popdist::getReplicaIndexOffset())
                       : 0;
          },
          "The number of the first of them in the job.")
      .def("run", &Session::Run, py::arg("program"), py::arg("inputs") = py::dict(),
           "Runs a program once; gives its outputs by name.")
      .def("read", &Session::Read, py::arg("name"), py::arg("replica") = 0)
      .def("write", &Session::Write, py::arg("name"), py::arg("values"), "On all replicas.")
      .def("save", &Session::Save, py::arg("path"), "All variables, as .npz.")
      .def("load", &Session::Load, py::arg("path"), py::arg("allow_missing") = false,
           "The variables of such a file; with allow_missing, it may lack some.")
      .def("set_learning_rate", &Session::SetLearningRate, py::arg("rate"), py::arg("group") = 0)
      .def("set_hyper_parameters", &Session::SetHyperParameters, py::arg("optimizer"),
           py::arg("group") = 0)
      .def("close", &Session::Close)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Session& session, const py::args&) { session.Close(); });
}

}  // namespace vpod::python
