// Executables that differ from valid ones in a field.
#pragma once

#include "proto/program/v1/program.pb.h"
#include "tests/support/fuzz.h"

namespace vpod::testing {

// Changes one field: a number, often to a value near its own or to that of another field; an
// element of a list; or a message, which becomes one of the same type of `donor`.
void MutateExecutable(program::v1::Executable& executable, program::v1::Executable& donor,
                      Random& random);

}  // namespace vpod::testing
