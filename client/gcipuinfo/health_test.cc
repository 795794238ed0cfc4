#include "client/gcipuinfo/health.h"

#include <gtest/gtest.h>

namespace vpod::gcinfo {
namespace {

using ipuof::MonitoredPartition;

void AddIpu(MonitoredPartition& partition, uint32_t id, const std::string& host,
            const std::string& state) {
  auto& ipu = partition.ipus.emplace_back();
  ipu.set_routing_id(id);
  (*ipu.mutable_attributes())["ipuof host"] = host;
  (*ipu.mutable_attributes())["board ipu index"] = std::to_string(3 - id % 4);
  (*ipu.mutable_attributes())["ipu error state"] = state;
}

void AddSilent(MonitoredPartition& partition, uint32_t id, const std::string& host) {
  auto& device = partition.silent.emplace_back();
  device.set_routing_id(id);
  device.set_ip(host);
  device.set_pcie_id(3 - id % 4);
}

MonitoredPartition Healthy(const std::string& id, uint32_t ipus) {
  MonitoredPartition partition;
  partition.id = id;
  for (uint32_t i = 0; i < ipus; ++i) AddIpu(partition, i, "10.1.5.10", "no errors");
  return partition;
}

TEST(HealthText, OfHealthyDevicesIsEmpty) {
  EXPECT_EQ(HealthText({Healthy("p1", 4), Healthy("p2", 1)}), "{}");
}

TEST(HealthText, IsThePublishedOne) {
  MonitoredPartition partition = Healthy("p1", 2);
  AddIpu(partition, 2, "10.1.5.10", "IPUSOFTERR");
  AddSilent(partition, 3, "10.1.5.10");
  EXPECT_EQ(
      HealthText({partition}),
      R"({ "hosts": { "10.1.5.10": [ {"error":"device","id":"2","partition":"p1","board ipu index":"1"},
                            {"error":"connection","id":"3","partition":"p1","board ipu index":"0"} ] } })");
}

TEST(HealthText, HostsStandUnderEachOtherAndIdsGoOn) {
  MonitoredPartition second;
  second.id = "p2";
  AddIpu(second, 0, "10.1.5.12", "memory parity error");
  AddSilent(second, 1, "10.1.5.11");
  EXPECT_EQ(
      HealthText({Healthy("p1", 4), second}),
      R"({ "hosts": { "10.1.5.11": [ {"error":"connection","id":"5","partition":"p2","board ipu index":"2"} ],
             "10.1.5.12": [ {"error":"device","id":"4","partition":"p2","board ipu index":"3"} ] } })");
}

}  // namespace
}  // namespace vpod::gcinfo
