// Worker cycles of element-by-element functions that no source lists (F20 of spec/hardware.md 10).
#pragma once

#include "device/arch/hardware.h"

namespace vpod::arch {

// For one 64-bit vector, 4 values of float16 or 2 of float32.
VPOD_DEFAULT double kPassCycles = 3;  // of arithmetic
VPOD_DEFAULT double kHalfTranscendentalCycles = 6;
VPOD_DEFAULT double kFloatTranscendentalCycles = 12;

}  // namespace vpod::arch
