// Names that C++ and Python have for the strings of gcipuinfo, as lists of ENTRY(name, string), so
// that both have the same.
#pragma once

#include "client/ipuof/event_record.h"

// Attributes of devices (spec/gc-tools.md 4): the words of the key, without parentheses. Attributes
// of PCIe cards are named too, although IPU-Machines do not have them.
#define GCIPUINFO_FOR_EACH_LABEL(ENTRY)                                             \
  ENTRY(Id, "id")                                                                   \
  ENTRY(Target, "target")                                                           \
  ENTRY(AverageBoardTemp, "average board temp")                                     \
  ENTRY(AverageDieTemp, "average die temp")                                         \
  ENTRY(BoardIpuIndex, "board ipu index")                                           \
  ENTRY(BoardSerialNumber, "board serial number")                                   \
  ENTRY(BoardType, "board type")                                                    \
  ENTRY(BoardVariant, "board variant")                                              \
  ENTRY(Clock, "clock")                                                             \
  ENTRY(ConfigDomain, "config domain")                                              \
  ENTRY(DriverVersion, "driver version")                                            \
  ENTRY(FirmwareMajorVersion, "firmware major version")                             \
  ENTRY(FirmwareMinorVersion, "firmware minor version")                             \
  ENTRY(FirmwarePatchVersion, "firmware patch version")                             \
  ENTRY(FirmwareVersion, "firmware version")                                        \
  ENTRY(GatewaySoftwareVersion, "gateway software version")                         \
  ENTRY(GraphStreaming, "graph streaming")                                          \
  ENTRY(HexoattActiveSizeBytes, "hexoatt active size (bytes)")                      \
  ENTRY(HexoattTotalSizeBytes, "hexoatt total size (bytes)")                        \
  ENTRY(HexoptActiveSizeBytes, "hexopt active size (bytes)")                        \
  ENTRY(HexoptTotalSizeBytes, "hexopt total size (bytes)")                          \
  ENTRY(HostLinkCorrectableErrorCount, "host link correctable error count")         \
  ENTRY(IcuBootloaderVersion, "icu bootloader version")                             \
  ENTRY(IpuArchitecture, "ipu architecture")                                        \
  ENTRY(IpuErrorState, "ipu error state")                                           \
  ENTRY(IpuPower, "ipu power")                                                      \
  ENTRY(IpuUtilisation, "ipu utilisation")                                          \
  ENTRY(IpuUtilisationSession, "ipu utilisation (session)")                         \
  ENTRY(IpuofHost, "ipuof host")                                                    \
  ENTRY(IpuofPartitionId, "ipuof partition id")                                     \
  ENTRY(IpuofRoutingId, "ipuof routing id")                                         \
  ENTRY(IpuofRoutingType, "ipuof routing type")                                     \
  ENTRY(IpuofServerVersion, "ipuof server version")                                 \
  ENTRY(LinkCorrectableErrorCount, "link correctable error count")                  \
  ENTRY(LinkCorrectableErrorCountSession, "link correctable error count (session)") \
  ENTRY(LinkSpeed, "link speed")                                                    \
  ENTRY(LinkWidth, "link width")                                                    \
  ENTRY(NumaNode, "numa node")                                                      \
  ENTRY(NumberOfReplicas, "number of replicas")                                     \
  ENTRY(ParityErrorCountThreshold, "parity error count threshold")                  \
  ENTRY(ParityErrorThresholdInterval, "parity error threshold interval")            \
  ENTRY(ParityInitialised, "parity initialised")                                    \
  ENTRY(PartitionSyncType, "partition sync type")                                   \
  ENTRY(PciId, "pci id")                                                            \
  ENTRY(PciePhysicalSlot, "pcie physical slot")                                     \
  ENTRY(ProcessStartTime, "process start time")                                     \
  ENTRY(ReconfigurablePartition, "reconfigurable partition")                        \
  ENTRY(RemoteBuffersSupported, "remote buffers supported")                         \
  ENTRY(SysfsFileId, "sysfs file id")                                               \
  ENTRY(TotalBoardPower, "total board power")                                       \
  ENTRY(UserExecutable, "user executable")                                          \
  ENTRY(UserName, "user name")                                                      \
  ENTRY(UserProcessId, "user process id")

// Keys of an event record (spec/gc-tools.md 9.2).
#define GCIPUINFO_FOR_EACH_EVENT_KEY(ENTRY)                             \
  ENTRY(keyRecordPath, vpod::ipuof::event_key::kRecordPath)             \
  ENTRY(keyTimestamp, vpod::ipuof::event_key::kTimestamp)               \
  ENTRY(keySeverity, vpod::ipuof::event_key::kSeverity)                 \
  ENTRY(keyCommandLine, vpod::ipuof::event_key::kCommandLine)           \
  ENTRY(keyPid, vpod::ipuof::event_key::kPid)                           \
  ENTRY(keyAttachedIPUs, vpod::ipuof::event_key::kAttachedIpus)         \
  ENTRY(keySpecificIPUs, vpod::ipuof::event_key::kSpecificIpus)         \
  ENTRY(keyAttachedIPUHosts, vpod::ipuof::event_key::kAttachedIpuHosts) \
  ENTRY(keySpecificIPUHosts, vpod::ipuof::event_key::kSpecificIpuHosts) \
  ENTRY(keyPartition, vpod::ipuof::event_key::kPartition)               \
  ENTRY(keyDescription, vpod::ipuof::event_key::kDescription)
