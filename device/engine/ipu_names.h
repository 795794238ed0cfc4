// Names of the IPUs of a replica in messages.
#pragma once

#include <cstdint>
#include <string>

#include "device/program/executable.h"

namespace vpod::engine {

// "IPU 5 (stage 2 of program 'train')": with the stages of a pipeline that the IPU works on, if the
// executable's origins tell of stages; otherwise "IPU 5". Looks at all instructions.
std::string NameOfIpu(const program::Executable& executable, uint32_t program, uint32_t ipu);

}  // namespace vpod::engine
