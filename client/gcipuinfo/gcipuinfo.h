// gcipuinfo: attributes of IPUs, event records of programs and a health check, for monitors
// (spec/gc-tools.md 9). Never attaches to an IPU and never disturbs who uses it.
//
//   gcipuinfo info;
//   for (const std::string& power : info.getNamedAttributeForAll(gcipuinfo::IpuPower)) …
//   if (info.checkHealthOfDevices() != "{}") …
//
// Devices are single IPUs. Their ids are those of gc-info: of the active partition 0 … n-1; of
// several GCDs or partitions, ids go on from one to the next.
//
// Two things differ from the manual, so that samplers of power get live numbers, which with the
// real library they do not. Data are refreshed without being asked: unless updateData or
// setUpdateMode was called, a query reads again what is older than 100 ms, and so sees programs
// that attach later. And temperature and power of an IPU that no program holds are numbers; while
// one holds it, they are "N/A" unless that runs with GCDA_MONITOR=1.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/gcipuinfo/labels.h"
#include "client/ipuof/event_record.h"

// Thread-safe. No call throws.
class gcipuinfo {
 public:
  enum DeviceDiscoveryMode { DiscoverActivePartitionIPUs, DiscoverAllPartitionIPUs };
  using EventSeverity = vpod::ipuof::EventSeverity;
  using Attributes = std::map<std::string, std::string>;

  // Names of attributes: gcipuinfo::IpuPower is "ipu power".
#define GCIPUINFO_LABEL(name, key) static constexpr const char* name = key;
  GCIPUINFO_FOR_EACH_LABEL(GCIPUINFO_LABEL)
#undef GCIPUINFO_LABEL
  // Keys of an event record.
#define GCIPUINFO_EVENT_KEY(name, key) static constexpr const char* name = key;
  GCIPUINFO_FOR_EACH_EVENT_KEY(GCIPUINFO_EVENT_KEY)
#undef GCIPUINFO_EVENT_KEY

  // Finds the partitions, once and for all, and reads the attributes of their IPUs. When that
  // fails, there are no devices, and checkHealthOfDevices says why. The modes cannot be mixed in
  // one process: an object of another mode than the first has no devices.
  explicit gcipuinfo(DeviceDiscoveryMode discoveryMode = DiscoverActivePartitionIPUs);
  ~gcipuinfo();

  // Reads all attributes again; from now on queries do so only in update mode. False: an agent did
  // not answer within 4 s, and the old ones stay.
  bool updateData();
  // With true, every query calls updateData first; with false, none reads anything.
  void setUpdateMode(bool autoUpdate);

  // Attributes of every device. Values are those that gc-info prints, with their units.
  std::vector<Attributes> getDevices();
  // The same as a JSON array of objects of strings.
  std::string getDevicesAsJSON();
  // One attribute of every device, or of one; "N/A" where there is none of that name or id.
  std::vector<std::string> getNamedAttributeForAll(const std::string& label);
  std::string getNamedAttributeForDevice(unsigned id, const std::string& label);

  // The event record in a directory, by default that of IPU_APP_EVENT_RECORD_PATH. Empty: there is
  // none. A damaged one gives the key "error".
  Attributes getLastAppEventRecord(const std::string& path = "") const;
  std::string getLastAppEventRecordAsJSON(const std::string& path = "") const;

  // Asks all agents again, for 4 s at most. "{}": all is well. Else the IPUs with errors and those
  // whose agent does not answer, by host, as JSON; {"error": "…"} when there was nothing to check.
  std::string checkHealthOfDevices();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
