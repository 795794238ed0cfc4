// Golden tests against the published samples of spec/gc-tools.md 2.
#include "tools/gc-monitor/monitor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/ipuof/attributes.h"
#include "device/base/file.h"

namespace vpod::tools {
namespace {

using nlohmann::ordered_json;
using telemetry::v1::IpuTelemetry;

constexpr int64_t kNow = 1700000000;
constexpr char kHost[] = "gc-poplar-01";

std::string Golden(const std::string& name) {
  const std::string text = base::ReadFile("tools/gc-monitor/testdata/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// IPU `id` of a GCD; machines of 4 IPUs with consecutive addresses and serial numbers.
IpuTelemetry Ipu(uint32_t id) {
  IpuTelemetry ipu;
  ipu.set_routing_id(id);
  auto& a = *ipu.mutable_attributes();
  const uint32_t number = 3 - id % 4;
  a["ipuof host"] = "10.5.48." + std::to_string(1 + id / 4);
  a["board serial number"] =
      (number >= 2 ? "0021.0002.82217" : "0021.0001.82217") + std::to_string(18 + id / 4);
  a["gateway software version"] = "2.6.0";
  a["ipuof server version"] = "1.11.0";
  a["firmware version"] = "2.5.9";
  a["board type"] = "M2000";
  a["board ipu index"] = std::to_string(number);
  a["pci id"] = std::to_string(number);
  a["ipuof routing type"] = "DNC";
  a["clock"] = "1330MHz";
  for (const char* key :
       {"average die temp", "average board temp", "total board power", "ipu power"})
    a[key] = "N/A";
  a["ipu utilisation"] = "0.00%";
  a["ipu utilisation (session)"] = "0.00%";
  return ipu;
}

MonitoredPartition Partition(const std::string& id, uint32_t ipus) {
  MonitoredPartition partition;
  partition.id = id;
  for (uint32_t i = 0; i < ipus; ++i) partition.ipus.push_back(Ipu(i));
  return partition;
}

void Attach(IpuTelemetry& ipu, uint32_t pid, const std::string& executable, const std::string& user,
            int64_t seconds, const std::string& other_host = "") {
  ipu.set_attached(true);
  ipu.mutable_process()->set_pid(pid);
  ipu.mutable_process()->set_executable(executable);
  ipu.mutable_process()->set_user(user);
  ipu.mutable_process()->set_host(other_host.empty() ? kHost : other_host);
  if (!other_host.empty())
    (*ipu.mutable_attributes())[ipuof::kProcessNamespace] = ipuof::kOtherNamespace;
  ipu.mutable_process()->set_start_time_unix(kNow - seconds);
}

void Measure(IpuTelemetry& ipu, const std::string& clock, const std::string& die,
             const std::string& board, const std::string& power) {
  auto& a = *ipu.mutable_attributes();
  a["clock"] = clock;
  a["average die temp"] = die;
  a["average board temp"] = board;
  a["total board power"] = power;
}

std::string Processes(const MonitoredPartition& partition, size_t columns = 0) {
  return ProcessTables(partition, columns, kNow);
}

std::string TitleOf(const MonitoredPartition& partition) {
  return Lines(DeviceTable(partition)).at(1);
}

TEST(DeviceTable, IsThePublishedOneWithARuleAfterEveryMachine) {
  EXPECT_EQ(DeviceTable(Partition("109267-reconfig", 16)), Golden("device_table.txt"));
}

TEST(DeviceTable, TitleNamesGcdAndKind) {
  MonitoredPartition partition = Partition("p1", 8);
  partition.show_gcd = true;
  EXPECT_EQ(TitleOf(partition),
            "|  gc-monitor   |            Partition: p1 (gcd:0) [active] has 8 reconfigurable IPUs"
            "             |");
  partition.show_gcd = false;
  partition.active = false;
  EXPECT_EQ(TitleOf(partition),
            "|  gc-monitor   |                     Partition: p1 has 8 reconfigurable IPUs"
            "                     |");
  partition.active = true;
  partition.reconfigurable = false;
  EXPECT_EQ(TitleOf(partition),
            "|  gc-monitor   |                        Partition: p1 [active] has 8 IPUs"
            "                        |");
}

TEST(DeviceTable, LongAddressKeepsItsEnd) {
  MonitoredPartition partition = Partition("p1", 1);
  (*partition.ipus[0].mutable_attributes())["ipuof host"] = "172.31.100.130";
  EXPECT_EQ(Lines(DeviceTable(partition)).at(5).substr(0, 15), "|...31.100.130|");
}

TEST(DeviceTable, MissingSoftwareVersionIsABlankCell) {
  MonitoredPartition partition = Partition("p1", 1);
  partition.ipus[0].mutable_attributes()->erase("gateway software version");
  EXPECT_EQ(Lines(DeviceTable(partition)).at(5),
            "|  10.5.48.1  | 0021.0002.8221718  |        |    1.11.0    |  2.5.9   | M2000 | 0  |"
            "  3   |  DNC  |");
}

TEST(DeviceTable, TitleCountsSilentIpusToo) {
  MonitoredPartition partition = Partition("p1", 2);
  partition.silent.resize(2);
  EXPECT_NE(DeviceTable(partition).find("has 4 reconfigurable IPUs"), std::string::npos);
}

TEST(DeviceTable, LongerTypeWidensTheColumnAndTheTitle) {
  MonitoredPartition partition = Partition("p1", 4);
  (*partition.ipus[2].mutable_attributes())["board type"] = "Bow-2000";
  const std::vector<std::string> lines = Lines(DeviceTable(partition));
  EXPECT_EQ(lines[0], "+---------------+" + std::string(82, '-') + "+");
  for (const std::string& line : lines) EXPECT_EQ(line.size(), 100u) << line;
  EXPECT_EQ(lines[5],
            "|  10.5.48.1  | 0021.0002.8221718  | 2.6.0  |    1.11.0    |  2.5.9   | M2000  | 0  |"
            "  3   |  DNC  |");
  EXPECT_EQ(lines[7],
            "|  10.5.48.1  | 0021.0001.8221718  | 2.6.0  |    1.11.0    |  2.5.9   |Bow-2000| 2  |"
            "  1   |  DNC  |");
}

TEST(DeviceTable, OtherRoutingsFitTheirColumn) {
  MonitoredPartition partition = Partition("p64", 1);
  (*partition.ipus[0].mutable_attributes())["ipuof routing type"] = "RINGSWNC";
  // Eight letters in seven: cut like every longer text.
  EXPECT_EQ(Lines(DeviceTable(partition)).at(5).substr(90), "|...SWNC|");
  (*partition.ipus[0].mutable_attributes())["ipuof routing type"] = "SWNC";
  EXPECT_EQ(Lines(DeviceTable(partition)).at(5).substr(90), "| SWNC  |");
}

TEST(ProcessTable, NoProcessIsThePublishedBox) {
  EXPECT_EQ(Processes(Partition("109267-reconfig", 16)), Golden("no_processes.txt"));
}

TEST(ProcessTable, IsThePublishedOneWithACentredTitle) {
  MonitoredPartition partition = Partition("p1", 16);
  for (uint32_t id = 12; id < 16; ++id)
    Attach(partition.ipus[id], 81816, "gc-hosttraffictest", "justina", 10);
  Measure(partition.ipus[12], "1300MHz", "31.4 C", "32.8 C", "107.1 W");
  Measure(partition.ipus[13], "1300MHz", "34.7 C", "32.8 C", "107.1 W");
  Measure(partition.ipus[14], "1300MHz", "33.7 C", "35.0 C", "113.7 W");
  Measure(partition.ipus[15], "1300MHz", "37.4 C", "35.0 C", "113.7 W");
  EXPECT_EQ(Processes(partition), Golden("process_table.txt"));
}

TEST(ProcessTable, CommandTakesWhatTheTerminalLeaves) {
  MonitoredPartition partition = Partition("p64", 1);
  Attach(partition.ipus[0], 205698, "python", "trainee01", 13);
  EXPECT_EQ(Lines(Processes(partition, 163)).at(1) + "\n", Golden("wide_title.txt"));
  EXPECT_EQ(Lines(Processes(partition, 158)).at(5) + "\n", Golden("wide_row.txt"));
  for (const size_t columns : {117u, 158u, 163u, 237u})
    EXPECT_EQ(Lines(Processes(partition, columns)).at(0).size(), columns);
  EXPECT_EQ(Lines(Processes(partition, 40)).at(0).size(), 85u);  // Command 9 at least
  EXPECT_EQ(Lines(Processes(partition, 0)).at(0).size(), 117u);
}

TEST(ProcessTable, OneVisibleIpuOfABoardShowsTheBoard) {
  MonitoredPartition partition = Partition("p1", 4);
  Attach(partition.ipus[1], 7, "app", "alice", 7500);
  Measure(partition.ipus[1], "1330MHz", "30.0 C", "25.0 C", "50.0 W");
  EXPECT_EQ(Lines(Processes(partition)).at(5),
            "|   7    |                   app                   |  2h5m  |   alice    | 1  |"
            " 1330MHz  | 30.0 C | 25.0 C | 50.0 W |");
}

TEST(ProcessTable, MachinesAscendAndIdsAscendInABoard) {
  MonitoredPartition partition = Partition("p1", 8);
  for (IpuTelemetry& ipu : partition.ipus) Attach(ipu, 1, "app", "alice", 1);
  std::vector<std::string> ids;
  const std::vector<std::string> lines = Lines(Processes(partition));
  for (size_t i = 5; i < lines.size(); ++i)
    ids.push_back(lines[i][0] == '+' ? "-" : lines[i].substr(75, 1));
  EXPECT_EQ(ids,
            (std::vector<std::string>{"2", "3", "-", "0", "1", "-", "6", "7", "-", "4", "5", "-"}));
}

TEST(OtherNamespaces, IsThePublishedTableAndStandsAlone) {
  MonitoredPartition partition = Partition("slurm_2616", 4);
  Attach(partition.ipus[0], 81816, "python", "bob", 10, "gc-poplar-02");
  Measure(partition.ipus[0], "1850MHz", "24.2 C", "21.1 C", "92.3 W");
  EXPECT_EQ(Processes(partition), Golden("other_namespaces.txt"));
}

TEST(OtherNamespaces, SameHostInAnotherPidNamespaceIsInvisible) {
  MonitoredPartition partition = Partition("slurm_2616", 1);
  Attach(partition.ipus[0], 81816, "python", "bob", 10, kHost);
  const std::string text = Processes(partition);
  EXPECT_EQ(text.find("Attached processes"), std::string::npos) << text;
  EXPECT_NE(text.find("attached from other namespaces"), std::string::npos) << text;
}

TEST(OtherNamespaces, FollowTheProcessTable) {
  MonitoredPartition partition = Partition("p1", 2);
  Attach(partition.ipus[0], 1, "app", "alice", 1);
  Attach(partition.ipus[1], 1, "app", "bob", 1, "gc-poplar-02");
  const std::string text = Processes(partition);
  const size_t processes = text.find("Attached processes in partition p1");
  const size_t others = text.find("IPUs in p1 attached from other namespaces");
  ASSERT_NE(processes, std::string::npos);
  ASSERT_NE(others, std::string::npos);
  EXPECT_LT(processes, others);
}

TEST(MonitorJson, IsAnObjectWithACardPerMachineAndStringValues) {
  MonitoredPartition partition = Partition("p1", 8);
  Attach(partition.ipus[5], 4711, "python3", "alice", 241);
  (*partition.ipus[5].mutable_attributes())["ipu utilisation"] = "87.36%";
  const std::string text = MonitorJson({partition}, kNow);
  const ordered_json json = ordered_json::parse(text);
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json.at("cards").size(), 2u);
  const ordered_json& card = json["cards"][1];
  EXPECT_EQ(card.at("IPU-M"), "10.5.48.2");
  EXPECT_EQ(card.at("Type"), "M2000");
  EXPECT_EQ(card.at("IPU-M SW"), "2.6.0");
  EXPECT_EQ(card.at("Server version"), "1.11.0");
  EXPECT_EQ(card.at("ICU FW"), "2.5.9");
  EXPECT_EQ(card.at("Partition"), "p1");
  EXPECT_EQ(card.at("Partition active"), "true");
  ASSERT_EQ(card.at("ipus").size(), 4u);
  const ordered_json& ipu = card["ipus"][1];
  std::vector<std::string> keys;
  for (const auto& [key, value] : ipu.items()) {
    keys.push_back(key);
    EXPECT_TRUE(value.is_string()) << key;
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"ID",
                                            "IPU#",
                                            "Serial",
                                            "PCIe ID",
                                            "Routing",
                                            "GCD",
                                            "device_id",
                                            "pcie_id",
                                            "Clock",
                                            "IPU temp",
                                            "Board temp",
                                            "Board power",
                                            "IPU utilisation",
                                            "IPU utilisation session",
                                            "PID",
                                            "Command",
                                            "Time",
                                            "User",
                                            "Application host",
                                            "started_at"}));
  EXPECT_EQ(ipu["device_id"], ipu["ID"]);
  EXPECT_EQ(ipu["pcie_id"], ipu["PCIe ID"]);
  EXPECT_EQ(ipu["started_at"].get<std::string>().size(), 20u) << ipu["started_at"];
  EXPECT_EQ(card["ipum_host"], card["IPU-M"]);
  EXPECT_EQ(card["partition_id"], card["Partition"]);
  EXPECT_EQ(ipu["ID"], "5");
  EXPECT_EQ(ipu["PCIe ID"], "2");
  EXPECT_EQ(ipu["IPU utilisation"], "87.36%");
  EXPECT_EQ(ipu["PID"], "4711");
  EXPECT_EQ(ipu["Time"], "4m1s");
  EXPECT_FALSE(card["ipus"][0].contains("PID"));
  EXPECT_EQ(text.substr(0, 15), "{\n \"cards\": [\n ");  // one blank a level
}

TEST(MonitorJson, IdsOfOtherNamespacesAreMarked) {
  MonitoredPartition partition = Partition("p1", 2);
  Attach(partition.ipus[0], 4711, "python3", "alice", 241);
  Attach(partition.ipus[1], 4711, "python3", "bob", 241, "gc-poplar-02");
  const ordered_json ipus = ordered_json::parse(MonitorJson({partition}, kNow))["cards"][0]["ipus"];
  EXPECT_FALSE(ipus[0].contains("PID namespace"));
  EXPECT_EQ(ipus[1].at("PID"), "4711");
  EXPECT_EQ(ipus[1].at("PID namespace"), "other");
}

TEST(MonitorJson, MachineSharedByTwoPartitionsIsACardInEach) {
  MonitoredPartition second = Partition("p2", 2);
  second.active = false;
  const ordered_json json = ordered_json::parse(MonitorJson({Partition("p1", 2), second}, kNow));
  ASSERT_EQ(json["cards"].size(), 2u);
  EXPECT_EQ(json["cards"][1]["Partition"], "p2");
  EXPECT_EQ(json["cards"][1]["Partition active"], "false");
}

TEST(MonitorCsv, HasTheColumnsThatPublicSamplersRead) {
  MonitoredPartition partition = Partition("p1", 2);
  Attach(partition.ipus[1], 4711, "a,b", "alice", 13);
  const std::vector<std::string> lines = Lines(MonitorCsv({partition}, kNow, /*headings=*/true));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            "IPU-M,Serial,IPU-M SW,Server version,ICU FW,Type,ID,IPU#,Routing,Partition,GCD,PID,"
            "Command,Time,User,Clock,IPU temp,Board temp,Board power,Application host,PCIe ID,"
            "IPU error state,IPU utilisation,IPU utilisation session,Link errors,IPU power");
  EXPECT_EQ(lines[1].rfind("10.5.48.1,0021.0002.8221718,", 0), 0u) << lines[1];
  for (const std::string& line : lines)
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 25) << line;
  EXPECT_NE(lines[2].find(",4711,a b,13s,alice,1330MHz,"), std::string::npos) << lines[2];
  EXPECT_EQ(Lines(MonitorCsv({partition}, kNow, /*headings=*/false)).size(), 2u);
}

TEST(MonitorTest, FailuresHaveNoCardsAndAReason) {
  EXPECT_EQ(MonitorErrorJson("no \"x\""), "{\"cards\": [], \"error\": \"no \\\"x\\\"\"}");
}

}  // namespace
}  // namespace vpod::tools
