// Every metric of the controller and of the machine exporter (spec/vipu.md 15): the
// exporters write these families, deploy/prometheus/METRICS.md lists them, and rules and dashboards
// may name no other.
#pragma once

#include "server/http/metrics.h"

namespace vpod::http {

// --- Controller ---

inline constexpr Family kBuildInfo{"vipu_build_info", Kind::kGauge, "version",
                                   "Always 1; the label is the controller's version."};
inline constexpr Family kStartTime{"vipu_start_time_seconds", Kind::kGauge, "",
                                   "Start of the controller, in seconds since 1970."};
inline constexpr Family kAgents{"vipu_agents", Kind::kGauge, "status",
                                "Agents by status: Up, Down or Unknown."};
inline constexpr Family kAgentUp{"vipu_agent_up", Kind::kGauge, "agent,cluster",
                                 "1 when the agent's status is Up, otherwise 0."};
inline constexpr Family kAgentLastSeen{
    "vipu_agent_last_seen_seconds", Kind::kGauge, "agent",
    "Age of the agent's last heartbeat; absent if there was none since the start."};
inline constexpr Family kClusters{"vipu_clusters", Kind::kGauge, "", "Clusters."};
inline constexpr Family kAllocations{"vipu_allocations", Kind::kGauge, "", "Allocations."};
inline constexpr Family kUsers{"vipu_users", Kind::kGauge, "", "Users with an access key."};
inline constexpr Family kPartitions{"vipu_partitions", Kind::kGauge, "state",
                                    "Partitions by state: PENDING, RELEASING, ACTIVE or ERROR."};
inline constexpr Family kPartitionSize{"vipu_partition_size_ipus", Kind::kGauge,
                                       "partition,cluster,allocation,user,state",
                                       "IPUs of the partition; user is its owner."};
inline constexpr Family kIpus{
    "vipu_ipus", Kind::kGauge, "cluster,allocation,use",
    "IPUs by use: free, used (in a partition) or error (they failed, or their agent is not Up)."};
inline constexpr Family kClusterTestPassed{"vipu_cluster_test_passed", Kind::kGauge, "cluster,test",
                                           "Probes that passed when 'test cluster' last ran the "
                                           "test; absent if it has not run since the start."};
inline constexpr Family kClusterTestExpected{"vipu_cluster_test_expected", Kind::kGauge,
                                             "cluster,test",
                                             "Probes of the test when 'test cluster' last ran it."};
inline constexpr Family kOperations{
    "vipu_operations_total", Kind::kCounter, "verb,noun,result",
    "Answered operations on objects, by result: success or failed."};
inline constexpr Family kOperationDuration{"vipu_operation_duration_seconds", Kind::kHistogram,
                                           "verb,noun,result",
                                           "Time from an operation's arrival to its answer."};
inline constexpr Family kApiRequests{
    "vipu_api_requests_total", Kind::kCounter, "endpoint,method,code",
    "gRPC calls that were answered, by end-point (user or admin) and gRPC code."};

// --- Machine exporter ---

inline constexpr Family kIpuInfo{"ipu_info", Kind::kGauge,
                                 "agent,ipu,partition,user,architecture,board_type,firmware,serial",
                                 "Always 1; the labels describe the IPU."};
inline constexpr Family kIpuUtilisation{
    "ipu_utilisation_ratio", Kind::kGauge, "agent,ipu,partition,user",
    "Share of the last second in which the IPU computed or exchanged, 0 to 1."};
inline constexpr Family kIpuDieTemperature{"ipu_die_temperature_celsius", Kind::kGauge,
                                           "agent,ipu,partition,user",
                                           "Average die temperature (modelled)."};
inline constexpr Family kIpuBoardTemperature{
    "ipu_board_temperature_celsius", Kind::kGauge, "agent,ipu,partition,user",
    "Average temperature of the board, which carries two IPUs (modelled)."};
inline constexpr Family kIpuPower{"ipu_power_watts", Kind::kGauge, "agent,ipu,partition,user",
                                  "Power of the IPU over the last second (modelled)."};
inline constexpr Family kIpuClock{"ipu_clock_hertz", Kind::kGauge, "agent,ipu,partition,user",
                                  "Tile clock."};
inline constexpr Family kIpuAttached{"ipu_attached", Kind::kGauge, "agent,ipu,partition,user",
                                     "1 when a process holds the IPU, otherwise 0."};
inline constexpr Family kIpuErrorState{
    "ipu_error_state", Kind::kGauge, "agent,ipu,partition,user",
    "1 when the IPU has an error that keeps programs from it, otherwise 0."};
inline constexpr Family kIpuParityErrors{"ipu_parity_errors_total", Kind::kCounter,
                                         "agent,ipu,partition,user",
                                         "Parity errors of tile memory."};
inline constexpr Family kIpuLinkUp{
    "ipu_link_up", Kind::kGauge, "agent,ipu,partition,user,link",
    "1 when the IPU-Link port carries traffic, 0 when its link is down or swapped."};
inline constexpr Family kIpuLinkTx{"ipu_link_tx_bytes_total", Kind::kCounter,
                                   "agent,ipu,partition,user,link",
                                   "Bytes sent through the IPU-Link port."};
inline constexpr Family kIpuLinkRx{"ipu_link_rx_bytes_total", Kind::kCounter,
                                   "agent,ipu,partition,user,link",
                                   "Bytes received through the IPU-Link port."};
inline constexpr Family kIpuLinkCorrectable{"ipu_link_correctable_errors_total", Kind::kCounter,
                                            "agent,ipu,partition,user,link",
                                            "Errors that the link corrected."};
inline constexpr Family kIpuLinkUncorrectable{"ipu_link_uncorrectable_errors_total", Kind::kCounter,
                                              "agent,ipu,partition,user,link",
                                              "Times that the link went down or corrupted data."};
inline constexpr Family kHostLinkTx{"host_link_tx_bytes_total", Kind::kCounter,
                                    "agent,ipu,partition,user",
                                    "Bytes that streams of programs sent to the host."};
inline constexpr Family kHostLinkRx{"host_link_rx_bytes_total", Kind::kCounter,
                                    "agent,ipu,partition,user",
                                    "Bytes that streams of programs received from the host."};
inline constexpr Family kHostLinkErrors{"host_link_errors_total", Kind::kCounter,
                                        "agent,ipu,partition,user",
                                        "Errors of the Host-Link; the emulation has none."};
inline constexpr Family kGwLinkUp{"gw_link_up", Kind::kGauge, "agent,port",
                                  "1 when the GW-Link port (east or west) carries traffic, 0 when "
                                  "its link is down or swapped."};
inline constexpr Family kGwLinkTx{"gw_link_tx_bytes_total", Kind::kCounter, "agent,port",
                                  "Bytes sent through the GW-Link port."};
inline constexpr Family kGwLinkRx{"gw_link_rx_bytes_total", Kind::kCounter, "agent,port",
                                  "Bytes received through the GW-Link port."};
inline constexpr Family kGwLinkErrors{"gw_link_errors_total", Kind::kCounter, "agent,port",
                                      "Errors of the GW-Link, corrected or not."};
inline constexpr Family kMachinePower{"machine_power_watts", Kind::kGauge, "agent",
                                      "Power of the machine with its IPUs (modelled)."};

// The names of Graphcore's V-IPU administrator guide, for dashboards and alerts that use them.
// `ipu_attached` above is one of them.
inline constexpr Family kChassisFan{"chassis_fan", Kind::kGauge, "agent,fan",
                                    "Speed of the fan in revolutions per minute (modelled)."};
inline constexpr Family kChassisPower{"chassis_power", Kind::kGauge, "agent",
                                      "Power in watts, as machine_power_watts (modelled)."};
inline constexpr Family kChassisTemperature{
    "chassis_temperature", Kind::kGauge, "agent,sensor",
    "Temperature in degrees Celsius of the air at the inlet and the outlet, and of both boards "
    "(modelled)."};
inline constexpr Family kExporterTicks{"exporter_ticks", Kind::kGauge, "",
                                       "Times that this exporter was read since its start."};
inline constexpr Family kClockFrequency{"gcipuinfo_clock_frequency", Kind::kGauge,
                                        "agent,ipu,partition,user",
                                        "Tile clock in MHz, as the attribute clock."};
inline constexpr Family kLinkErrorCount{
    "ipu_link_err_cnt", Kind::kGauge, "agent,ipu,partition,user,link",
    "Errors of the IPU-Link since the last reset, corrected or not."};
inline constexpr Family kTileClockSpeed{"ipu_tile_clk_speed", Kind::kGauge,
                                        "agent,ipu,partition,user",
                                        "Tile clock in Hz, as ipu_clock_hertz."};
inline constexpr Family kHardwareInfo{"ipum_hardware_info", Kind::kGauge,
                                      "agent,board_type,firmware,gateway_software,ipuof_server",
                                      "Always 1; what the IPU-Machine is and what runs on it."};

// --- Both lists, in the order in which the exporters write them ---

inline constexpr const Family* kControllerFamilies[] = {
    &kBuildInfo,           &kStartTime,     &kAgents,      &kAgentUp,
    &kAgentLastSeen,       &kClusters,      &kAllocations, &kUsers,
    &kPartitions,          &kPartitionSize, &kIpus,        &kClusterTestPassed,
    &kClusterTestExpected, &kOperations,    &kApiRequests, &kOperationDuration};
inline constexpr const Family* kMachineFamilies[] = {&kIpuInfo,
                                                     &kIpuUtilisation,
                                                     &kIpuDieTemperature,
                                                     &kIpuBoardTemperature,
                                                     &kIpuPower,
                                                     &kIpuClock,
                                                     &kIpuAttached,
                                                     &kIpuErrorState,
                                                     &kIpuParityErrors,
                                                     &kHostLinkTx,
                                                     &kHostLinkRx,
                                                     &kHostLinkErrors,
                                                     &kIpuLinkUp,
                                                     &kIpuLinkTx,
                                                     &kIpuLinkRx,
                                                     &kIpuLinkCorrectable,
                                                     &kIpuLinkUncorrectable,
                                                     &kGwLinkUp,
                                                     &kGwLinkTx,
                                                     &kGwLinkRx,
                                                     &kGwLinkErrors,
                                                     &kMachinePower,
                                                     &kChassisFan,
                                                     &kChassisPower,
                                                     &kChassisTemperature,
                                                     &kExporterTicks,
                                                     &kClockFrequency,
                                                     &kLinkErrorCount,
                                                     &kTileClockSpeed,
                                                     &kHardwareInfo};

}  // namespace vpod::http
