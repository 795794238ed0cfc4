// What the extension says of the POD and the partition that programs of this shell use.
#include <chrono>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client/python/poptorch/core.h"
#include "client/vipu/client.h"
#include "client/vipu/config.h"
#include "client/vipu/ipuof_config.h"

namespace vpod::poptorch::python {
namespace {

constexpr std::chrono::seconds kPatience{10};

int ActiveIpus() {
  const auto partition = vipu::FindActivePartition();
  return partition.ok() ? partition->config.devices_size() : 0;
}

// Its name, the number of the GCD, how many IPUs it has, and who said so.
std::tuple<std::string, uint32_t, int, std::string> ActivePartition() {
  const vipu::ActivePartition partition = Take(vipu::FindActivePartition());
  const std::string where = partition.controller.empty()
                                ? absl::StrCat("named by ", partition.file)
                                : absl::StrCat("controller ", partition.controller);
  return {partition.partition_id, partition.gcd, partition.config.devices_size(), where};
}

// The address of the controller, which has answered.
std::string Controller() {
  vipu::Client client(Take(vipu::DiscoverConfig({})), kPatience);
  Take(client.ServerInfo());
  return client.config().address();
}

}  // namespace

void DefinePod(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> unlocked;
  module.def("active_ipus", ActiveIpus, unlocked,
             "The number of IPUs of the active partition; 0 without one.");
  module.def("active_partition", ActivePartition, unlocked,
             "The active partition: its name, the number of its GCD, how many IPUs the GCD has, "
             "and who named it. StatusError says why there is none.");
  module.def("controller", Controller, unlocked,
             "The address of the controller, which has answered. StatusError says why not.");
}

}  // namespace vpod::poptorch::python
