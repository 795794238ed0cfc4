// This process as a member of a job, for attaching to devices.
#pragma once

#include "proto/ipuof/v1/ipuof.pb.h"

namespace popdist {

// From the environment of poprun, or a job of one instance with `replicas` replicas of
// `ipus_per_replica` IPUs. Each call begins another round of attaches; all instances call it
// equally often. Throws popdist_error like the context functions.
vpod::ipuof::v1::JobMember ThisJobMember(uint32_t replicas, uint32_t ipus_per_replica);

}  // namespace popdist
