// Where this process stands in a job started by poprun: what the environment says (spec/poprun.md 6
// and 11).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace popdist {

// Thrown by the functions of this library, as users of the real one expect; it names variable and
// value.
class popdist_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// True under poprun: POPDIST_NUM_TOTAL_REPLICAS is set.
bool isPopdistEnvSet();

// From the environment, 1 without one. popdist_error: a value that is no number of 1 or more, a
// total that is no multiple of the local replicas, replicas beyond the total, or only some of total
// replicas, local replicas and offset.
uint32_t getNumTotalReplicas();
uint32_t getNumLocalReplicas();
uint32_t getNumIpusPerReplica();
// total / local, and offset / local.
uint32_t getNumInstances();
uint32_t getInstanceIndex();
// Index among the instances of this host, and the first global replica of this instance; 0 where
// missing.
uint32_t getLocalInstanceIndex();
uint32_t getReplicaIndexOffset();
// False when the environment is set and says another number.
bool checkNumIpusPerReplica(uint32_t ipus_per_replica);

// Device of this instance in a GCD of `num_ipus`: the child of POPDIST_NODE_DEVICE_ID, else the
// first device of local × IPUs. 0 for `ipus_per_replica` takes it from the environment.
uint32_t getDeviceId(uint32_t num_ipus, uint32_t ipus_per_replica = 0);

}  // namespace popdist
