#include "client/compiler/text_reader.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/passes.h"
#include "device/base/text.h"

namespace vpod::compiler {
namespace {

using program::v1::Instruction;

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string& message) override {
    if (message_.empty()) message_ = message;
  }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

// Behind the text in quotes, which begins with one; npos if it does not end.
size_t EndOfQuotes(absl::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == text[begin]) return i + 1;
    if (text[i] == '\\') ++i;
  }
  return absl::string_view::npos;
}

// The first `sign` outside quotes; npos if there is none.
size_t Find(absl::string_view text, char sign) {
  for (size_t i = 0; i < text.size();) {
    if (text[i] == sign) return i;
    i = text[i] == '"' || text[i] == '\'' ? EndOfQuotes(text, i) : i + 1;
  }
  return absl::string_view::npos;
}

bool IsOfWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

void TextReader::Fail(absl::string_view mistake) {
  if (!ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat("line ", std::max(number_, 1), ": ", mistake));
  text_ = line_ = {};
}

void TextReader::Expected(absl::string_view piece) {
  const std::string found =
      line_.empty() ? "the end of the line" : absl::StrCat("'", base::Printable(line_, 40), "'");
  Fail(absl::StrCat("expected ", piece, ", found ", found));
}

bool TextReader::NextLine() {
  if (!line_.empty()) Expected("the end of the line");
  while (!text_.empty()) {
    const size_t end = std::min(text_.find('\n'), text_.size() - 1);
    line_ = absl::StripAsciiWhitespace(text_.substr(0, end + 1));
    text_.remove_prefix(end + 1);
    ++number_;
    if (!line_.empty()) return true;
  }
  return false;
}

void TextReader::Skip(size_t size) {
  line_.remove_prefix(size);
  line_ = absl::StripLeadingAsciiWhitespace(line_);
}

bool TextReader::Take(absl::string_view word) {
  if (!absl::StartsWith(line_, word)) return false;
  const bool ends = line_.size() == word.size() || !IsOfWord(line_[word.size()]);
  if (IsOfWord(word.back()) && !ends) return false;
  Skip(word.size());
  return true;
}

void TextReader::Expect(absl::string_view word) {
  if (!Take(word)) Expected(absl::StrCat("'", word, "'"));
}

uint64_t TextReader::Integer(uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(line_.begin(), line_.end(), value);
  if (error != std::errc() || value > most) {
    Expected(absl::StrCat("a number from 0 to ", most));
    return 0;
  }
  Skip(static_cast<size_t>(end - line_.begin()));
  return value;
}

template <class Real>
Real TextReader::RealNumber() {
  Real value = 0;
  const auto [end, error] = std::from_chars(line_.begin(), line_.end(), value);
  if (error != std::errc()) {
    Expected("a number");
    return 0;
  }
  Skip(static_cast<size_t>(end - line_.begin()));
  return value;
}

float TextReader::Float() { return RealNumber<float>(); }
double TextReader::Double() { return RealNumber<double>(); }

bool TextReader::Bool() {
  if (Take("true")) return true;
  if (!Take("false")) Expected("'true' or 'false'");
  return false;
}

std::string TextReader::Text() {
  const size_t end = absl::StartsWith(line_, "\"") ? EndOfQuotes(line_, 0) : line_.npos;
  std::string text;
  if (end == line_.npos || !absl::CUnescape(line_.substr(1, end - 2), &text)) {
    Expected("a text in quotes");
    return "";
  }
  Skip(end);
  return text;
}

uint32_t TextReader::Id() {
  Expect("%");
  return Number();
}

std::vector<uint32_t> TextReader::Ids() {
  std::vector<uint32_t> ids;
  if (!absl::StartsWith(line_, "%")) return ids;
  do ids.push_back(Id());
  while (Take(","));
  return ids;
}

program::Dims TextReader::Dims() {
  program::Dims dims;
  Expect("[");
  if (Take("]")) return dims;
  do dims.push_back(static_cast<int64_t>(Integer(program::kMaxElements)));
  while (Take(","));
  Expect("]");
  return dims;
}

program::TensorType TextReader::Type() {
  program::TensorType type;
  for (int t = 1; t <= program::v1::DataType_MAX; ++t) {
    type.type = static_cast<program::v1::DataType>(t);
    if (!Take(program::Name(type.type))) continue;
    type.dims = Dims();
    const absl::Status status = program::Check(type);
    if (!status.ok()) Fail(status.message());
    return ok() ? type : program::TensorType();
  }
  Expected("a type, such as float32[2,3]");
  return {};
}

void TextReader::Message(absl::string_view what, char end, google::protobuf::Message& message) {
  const size_t size = Find(line_, end);
  if (size == line_.npos)
    return Expected(absl::StrCat(what, " and then '", absl::string_view(&end, 1), "'"));
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(16);
  if (!parser.ParseFromString(std::string(line_.substr(0, size)), &message))
    return Expected(absl::StrCat(what, " (", base::Printable(error.message()), ")"));
  Skip(size);
}

void TextReader::Braced(google::protobuf::Message& message) {
  Expect("{");
  Message(message.GetDescriptor()->name(), '}', message);
  Expect("}");
}

Instruction TextReader::Operation(program::Form form) {
  Instruction instruction;
  Message("an operation", '(', instruction);
  if (!ok()) return {};
  const program::OpDef* op = program::FindOp(instruction.attributes_case());
  if (op == nullptr || instruction.inputs_size() + instruction.outputs_size() > 0) {
    Expected("an operation before its operands");
  } else if (FirstForm(instruction) > form) {
    Fail(absl::StrCat(program::OpName(op->kind), " is an op that only a later pass may make"));
  }
  Expect("(");
  for (uint32_t id : Ids()) instruction.add_inputs(id);
  Expect(")");
  return ok() ? instruction : Instruction();
}

}  // namespace vpod::compiler
