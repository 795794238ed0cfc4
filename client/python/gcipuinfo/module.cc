// The Python module gcipuinfo: the C++ class under the same names, labels at module level. Calls
// that ask agents let other threads run.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>

#include "client/gcipuinfo/gcipuinfo.h"

namespace py = pybind11;

PYBIND11_MODULE(gcipuinfo, module) {
  module.doc() = "Attributes of IPUs, event records of programs and a health check.";
  const auto unlocked = py::call_guard<py::gil_scoped_release>();

  py::enum_<gcipuinfo::DeviceDiscoveryMode>(module, "DeviceDiscoveryMode")
      .value("DiscoverActivePartitionIPUs", gcipuinfo::DiscoverActivePartitionIPUs)
      .value("DiscoverAllPartitionIPUs", gcipuinfo::DiscoverAllPartitionIPUs)
      .export_values();
  py::enum_<gcipuinfo::EventSeverity>(module, "EventSeverity")
      .value("Info", gcipuinfo::EventSeverity::kInfo)
      .value("Warning", gcipuinfo::EventSeverity::kWarning)
      .value("Error", gcipuinfo::EventSeverity::kError)
      .value("Fatal", gcipuinfo::EventSeverity::kFatal);

  py::class_<gcipuinfo> info(module, "gcipuinfo");
  info.def(py::init<gcipuinfo::DeviceDiscoveryMode>(),
           py::arg("discoveryMode") = gcipuinfo::DiscoverActivePartitionIPUs, unlocked)
      .def("updateData", &gcipuinfo::updateData, unlocked,
           "Reads all attributes again; False when an agent does not answer.")
      .def("setUpdateMode", &gcipuinfo::setUpdateMode, py::arg("autoUpdate"), unlocked,
           "With True, every query calls updateData first; with False, none reads anything.")
      .def("getDevices", &gcipuinfo::getDevices, unlocked, "A dict of attributes for every device.")
      .def("getDevicesAsJSON", &gcipuinfo::getDevicesAsJSON, unlocked)
      .def("getNamedAttributeForAll", &gcipuinfo::getNamedAttributeForAll, py::arg("label"),
           unlocked)
      .def("getNamedAttributeForDevice", &gcipuinfo::getNamedAttributeForDevice, py::arg("id"),
           py::arg("label"), unlocked)
      .def(
          "getLastAppEventRecord",
          [](gcipuinfo& self, const std::filesystem::path& path) {
            return self.getLastAppEventRecord(path);
          },
          py::arg("path") = "", unlocked,
          "The record in a directory, by default that of IPU_APP_EVENT_RECORD_PATH.")
      .def(
          "getLastAppEventRecordAsJSON",
          [](gcipuinfo& self, const std::filesystem::path& path) {
            return self.getLastAppEventRecordAsJSON(path);
          },
          py::arg("path") = "", unlocked)
      .def("checkHealthOfDevices", &gcipuinfo::checkHealthOfDevices, unlocked,
           "JSON of the devices with errors; '{}' when all is well.");
#define EXPORT_LABEL(name, key) module.attr(#name) = key;
  GCIPUINFO_FOR_EACH_LABEL(EXPORT_LABEL)
#undef EXPORT_LABEL
#define EXPORT_EVENT_KEY(name, key) info.attr(#name) = gcipuinfo::name;
  GCIPUINFO_FOR_EACH_EVENT_KEY(EXPORT_EVENT_KEY)
#undef EXPORT_EVENT_KEY
}
