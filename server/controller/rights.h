// A change of users' rights to partitions.
#pragma once

#include <map>
#include <set>
#include <string>

#include "device/base/id_order.h"
#include "proto/vipu/v1/vipuadmin.pb.h"

namespace vpod::controller {

// What users lose of one partition.
struct LostPartition {
  std::set<std::string> users;  // whose fabric keys are void and whose jobs are concerned
  bool from_creator = false;    // one of them created it, and has no right to it any more
};

struct RightsChange {
  std::string subject;  // what is changed, in messages: "User alice"
  std::string object;   // the same, in the log of events
  std::string by;       // who asked; partitions are handed over to this administrator
  std::string text;     // for the log of events
  vipuadmin::JobsOfUser jobs = vipuadmin::JOBS_UNDECIDED;
  std::map<std::string, LostPartition, base::IdOrder> lost;  // by the partition's id
};

}  // namespace vpod::controller
