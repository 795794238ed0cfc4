// Takes the printed form of a program apart, line by line and piece by piece. The first mistake is
// kept; after it every piece is empty or 0 and no line comes. It is InvalidArgument with the line's
// number and what was expected there.
//
//   TextReader reader("move %3 to %5\n");
//   while (reader.NextLine()) {
//     reader.Expect("move");
//     const uint32_t from = reader.Id();
//     reader.Expect("to");
//     Add(from, reader.Id());
//   }
//   return reader.status();
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "device/program/op.h"

namespace vpod::compiler {

class TextReader {
 public:
  // The text outlives the object.
  explicit TextReader(absl::string_view text) : text_(text) {}

  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  // Remembers a mistake on this line.
  void Fail(absl::string_view mistake);
  // A mistake: something else than `piece` comes next.
  void Expected(absl::string_view piece);

  // Goes to the next line that is not blank; false at the end. The line before must have been taken
  // as a whole.
  bool NextLine();

  // --- Pieces of a line; blanks between them are skipped ---
  bool AtEnd() const { return line_.empty() || !ok(); }  // no piece is left
  // Takes a word or sign if it comes next.
  bool Take(absl::string_view word);
  void Expect(absl::string_view word);
  // From 0 to `most`.
  uint64_t Integer(uint64_t most);
  uint32_t Number() { return static_cast<uint32_t>(Integer(std::numeric_limits<uint32_t>::max())); }
  float Float();
  double Double();
  bool Bool();                  // "true" or "false"
  std::string Text();           // in quotes
  uint32_t Id();                // "%3"
  std::vector<uint32_t> Ids();  // "%3, %4" or nothing
  program::Dims Dims();         // "[2,3]"
  program::TensorType Type();   // "float32[2,3]", a valid type
  // "{ … }" at the end of the line, in protobuf's text format.
  void Braced(google::protobuf::Message& message);
  // "binary { operator: ADD } (%1, %2)": an op that may occur in that form of a program.
  program::v1::Instruction Operation(program::Form form);

 private:
  // Goes on behind this many bytes and the blanks that follow.
  void Skip(size_t size);
  template <class Real>
  Real RealNumber();
  // Protobuf's text format up to `end`, which is not taken.
  void Message(absl::string_view what, char end, google::protobuf::Message& message);

  absl::string_view text_;  // behind the line
  absl::string_view line_;  // what is left of it, without blanks at its ends
  int number_ = 0;          // of the line, from 1
  absl::Status status_;
};

}  // namespace vpod::compiler
