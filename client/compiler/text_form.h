// Parts that the printed forms of a program have in common, and the last form. Each is a text with
// a piece of the program on every line, and reads back to the same program (text_reader.h). A NaN
// reads back as a NaN, perhaps of another sign.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/strings/string_view.h"
#include "device/program/tensor_type.h"

namespace vpod::compiler {

// Any bytes as "text" on one line.
std::string Quoted(absl::string_view text);
// The shortest digits that read back to the same number.
std::string Digits(float value);
std::string Digits(double value);
// "{ … }" in protobuf's text format.
std::string Braced(const google::protobuf::Message& message);
// "%3, %4 = binary { operator: ADD } (%1, %2)"
std::string Print(const program::v1::Instruction& instruction);
// Protobuf's text format on many lines, from which Executable::Make gives the same executable.
std::string Print(const program::v1::Executable& executable);

}  // namespace vpod::compiler
