#include "server/http/machine_exporter.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/families.h"

namespace vpod::http {
namespace {

std::vector<agent::MachineReading> TwoMachines() {
  std::vector<agent::MachineReading> machines(2);
  machines[0].agent = "ag0";
  machines[1].agent = "ag1";
  agent::IpuReading& ipu = machines[1].ipus[3];
  ipu = {.partition = "p1", .user = "alice", .serial = "0131.0002.8204521", .attached = true};
  ipu.sensors = {.utilisation = 0.5,
                 .die_celsius = 52.5,
                 .board_celsius = 48,
                 .power_watts = 100,
                 .clock_hz = 1.33e9};
  ipu.error = true;
  ipu.parity_errors = 2;
  ipu.host_rx_bytes = 4096;
  ipu.host_tx_bytes = 17;
  machines[1].links.resize(arch::kPortsPerMachine);
  machine::LinkReading& link = machines[1].links[3 * arch::kLinksPerIpu];
  link.fault.down = true;
  link.counters = {
      .tx_bytes = 11, .rx_bytes = 12, .correctable_errors = 13, .uncorrectable_errors = 1};
  machines[1].links[arch::kFirstGwPort].fault.swapped = true;
  machines[1].links[arch::kFirstGwPort + 1].counters = {
      .tx_bytes = 21, .rx_bytes = 22, .correctable_errors = 20, .uncorrectable_errors = 3};
  return machines;
}

TEST(MachineExporterTest, ShowsEveryIpuOfEveryMachine) {
  const std::string text =
      WriteMachineMetrics(TwoMachines(), *arch::FindMachineType("m2000"), Format::kText);
  const std::string labels = "{agent=\"ag1\",ipu=\"3\",partition=\"p1\",user=\"alice\"";
  for (const std::string& line :
       {"ipu_info" + labels +
            ",architecture=\"GC200\",board_type=\"M2000\",firmware=\"2.5.9\",serial=\"0131.0002."
            "8204521\"} 1",
        "ipu_utilisation_ratio" + labels + "} 0.5",
        "ipu_die_temperature_celsius" + labels + "} 52.5",
        "ipu_board_temperature_celsius" + labels + "} 48", "ipu_power_watts" + labels + "} 100",
        "ipu_clock_hertz" + labels + "} 1330000000", "ipu_attached" + labels + "} 1",
        "host_link_tx_bytes_total" + labels + "} 17",
        "host_link_rx_bytes_total" + labels + "} 4096",
        std::string("ipu_attached{agent=\"ag0\",ipu=\"0\",partition=\"\",user=\"\"} 0"),
        std::string("machine_power_watts{agent=\"ag1\"} 360")}) {
    EXPECT_TRUE(absl::StrContains(text, line + "\n")) << line << "\n" << text;
  }
}

TEST(MachineExporterTest, ShowsItsLinks) {
  const std::string text =
      WriteMachineMetrics(TwoMachines(), *arch::FindMachineType("m2000"), Format::kText);
  const std::string labels =
      absl::StrCat("{agent=\"ag1\",ipu=\"3\",partition=\"p1\",user=\"alice\",link=\"",
                   arch::PortName(3 * arch::kLinksPerIpu), "\"} ");
  for (const char* line :
       {"ipu_error_state{agent=\"ag1\",ipu=\"3\",partition=\"p1\",user=\"alice\"} 1",
        "ipu_parity_errors_total{agent=\"ag1\",ipu=\"3\",partition=\"p1\",user=\"alice\"} 2",
        "gw_link_up{agent=\"ag1\",port=\"east\"} 0", "gw_link_up{agent=\"ag1\",port=\"west\"} 1",
        "gw_link_tx_bytes_total{agent=\"ag1\",port=\"west\"} 21",
        "gw_link_rx_bytes_total{agent=\"ag1\",port=\"west\"} 22",
        "gw_link_errors_total{agent=\"ag1\",port=\"west\"} 23"}) {
    EXPECT_TRUE(absl::StrContains(text, absl::StrCat(line, "\n"))) << line << "\n" << text;
  }
  for (const std::string& line :
       {"ipu_link_up" + labels + "0", "ipu_link_tx_bytes_total" + labels + "11",
        "ipu_link_rx_bytes_total" + labels + "12",
        "ipu_link_correctable_errors_total" + labels + "13",
        "ipu_link_uncorrectable_errors_total" + labels + "1"}) {
    EXPECT_TRUE(absl::StrContains(text, line + "\n")) << line << "\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "_link_up{agent=\"ag0\"")) << "its links were not read";
}

TEST(MachineExporterTest, HasThePublishedNamesBesideOurs) {
  const std::string text = WriteMachineMetrics(TwoMachines(), *arch::FindMachineType("m2000"),
                                               Format::kText, /*ticks=*/7);
  const std::string labels = "{agent=\"ag1\",ipu=\"3\",partition=\"p1\",user=\"alice\"";
  for (const std::string& line :
       {"gcipuinfo_clock_frequency" + labels + "} 1330",
        "ipu_tile_clk_speed" + labels + "} 1330000000",
        absl::StrCat("ipu_link_err_cnt", labels, ",link=\"", arch::PortName(3 * arch::kLinksPerIpu),
                     "\"} 14"),
        std::string("chassis_fan{agent=\"ag1\",fan=\"4\"} 6600"),
        std::string("chassis_power{agent=\"ag1\"} 360"),
        std::string("chassis_temperature{agent=\"ag1\",sensor=\"inlet\"} 18"),
        std::string("chassis_temperature{agent=\"ag1\",sensor=\"outlet\"} 25.2"),
        std::string("exporter_ticks 7"),
        std::string("ipum_hardware_info{agent=\"ag1\",board_type=\"M2000\",firmware=\"2.5.9\","
                    "gateway_software=\"2.6.0\",ipuof_server=\"1.11.0\"} 1")}) {
    EXPECT_TRUE(absl::StrContains(text, "\n" + line + "\n")) << line << "\n" << text;
  }
}

TEST(MachineExporterTest, WritesTheFamiliesInTheirOrder) {
  const std::string text =
      WriteMachineMetrics(TwoMachines(), *arch::FindMachineType("bow2000"), Format::kText);
  size_t at = 0;
  for (const Family* family : kMachineFamilies) {
    const size_t found = text.find(absl::StrCat("# TYPE ", family->name, " "), at);
    ASSERT_NE(found, std::string::npos) << family->name;
    at = found;
  }
}

TEST(MachineExporterTest, ReadsAnAgent) {
  auto agent = agent::Agent::Create({.num_machines = 2, .compute_threads = 1});
  ASSERT_TRUE(agent.ok());
  const Routes routes = MachineRoutes(**agent, [] { return absl::OkStatus(); });
  const auto scrape = [&] { return routes.at("/metrics")({}).body; };
  EXPECT_TRUE(absl::StrContains(scrape(), "ipu_attached{agent=\"127.10.0.2\",ipu=\"3\","));
  (*agent)->SetAgentIds({{"127.10.0.2", "ag1"}});
  vipuagent::ConfigureRequest request;
  request.set_complete(true);
  vipuagent::AgentPartition* partition = request.add_partitions();
  partition->set_id("p1");
  partition->set_owner("alice");
  vipuagent::Slice* slice = partition->add_gcds()->add_slices();
  slice->set_machine_host("127.10.0.2");
  slice->set_first_pcie_id(3);
  slice->set_num_ipus(1);
  ASSERT_TRUE((*agent)->Configure(request).ok());
  EXPECT_TRUE(absl::StrContains(
      scrape(), "ipu_attached{agent=\"ag1\",ipu=\"3\",partition=\"p1\",user=\"alice\"} 0\n"))
      << scrape();
  EXPECT_EQ(routes.at("/metrics")({.accept = "application/json"}).status, 406);
  EXPECT_TRUE(absl::StrContains(scrape(), "\nexporter_ticks 3\n")) << "it is read again";
}

TEST(MachineExporterTest, ManyIdleMachinesAreLeftOut) {
  auto agent = agent::Agent::Create({.num_machines = 65, .compute_threads = 1});
  ASSERT_TRUE(agent.ok());
  EXPECT_TRUE((*agent)->ReadMachines().empty());
  agent = agent::Agent::Create({.num_machines = 64, .compute_threads = 1});
  ASSERT_TRUE(agent.ok());
  EXPECT_EQ((*agent)->ReadMachines().size(), 64u);
}

}  // namespace
}  // namespace vpod::http
