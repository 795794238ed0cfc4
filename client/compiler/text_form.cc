#include "client/compiler/text_form.h"

#include <google/protobuf/text_format.h>

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vpod::compiler {
namespace {

template <class Real>
std::string ShortestDigits(Real value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

std::string OnOneLine(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  printer.PrintToString(message, &text);
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

// "%3, %4"
std::string Names(const google::protobuf::RepeatedField<uint32_t>& ids) {
  return absl::StrJoin(ids, ", ",
                       [](std::string* out, uint32_t id) { absl::StrAppend(out, "%", id); });
}

}  // namespace

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
}

std::string Digits(float value) { return ShortestDigits(value); }
std::string Digits(double value) { return ShortestDigits(value); }

std::string Braced(const google::protobuf::Message& message) {
  return absl::StrCat("{ ", OnOneLine(message), " }");
}

std::string Print(const program::v1::Instruction& instruction) {
  program::v1::Instruction attributes = instruction;
  attributes.clear_inputs();
  attributes.clear_outputs();
  return absl::StrCat(Names(instruction.outputs()), instruction.outputs().empty() ? "" : " = ",
                      OnOneLine(attributes), " (", Names(instruction.inputs()), ")");
}

std::string Print(const program::v1::Executable& executable) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(executable, &text);
  return text;
}

}  // namespace vpod::compiler
