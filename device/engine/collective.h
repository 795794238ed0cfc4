// Collectives of a program as the fabric knows them.
#pragma once

#include "device/fabric/collective.h"
#include "device/program/ops/collective.h"

namespace vpod::engine {

// Describes a collective as it is for all members of a group, on the tensors of `ipu`, yet without
// their memory. `what` names operation, operator and elements.
fabric::Collective Describe(const program::Collective& op, const program::v1::Ipu& ipu,
                            uint32_t members);

}  // namespace vpod::engine
