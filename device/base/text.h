// Text that came from outside: whether messages and headers can carry it, and how it is shown.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

// Whether the bytes are UTF-8 as protobuf's `string` takes it: shortest forms only, no surrogates,
// at most U+10FFFF.
bool IsUtf8(absl::string_view text);

// Whether gRPC takes the bytes as the value of a header, and tables and scripts as one word: 1 to
// `most` characters of graphic ASCII (no blank, no bar). gRPC aborts the process on anything else.
bool IsHeaderWord(absl::string_view text, size_t most = 128);
inline constexpr char kHeaderWordRule[] =
    "1 to 128 printable ASCII characters without blanks and bars";

// Whether messages can carry the bytes and an answer about them is one line: UTF-8 without what
// Printable replaces.
bool IsTextLine(absl::string_view text);

// InvalidArgument naming `field` and quoting the text in escapes.
absl::Status CheckUtf8(absl::string_view field, absl::string_view text);
absl::Status CheckHeaderWord(absl::string_view field, absl::string_view text);

// The text on one line of a terminal, table or log: at most `most` bytes in whole characters, "…"
// for the rest, U+FFFD for every byte that is no UTF-8 and every character that is not for display
// (controls of C0 and C1, line and paragraph separators, marks that turn the direction of text).
std::string Printable(absl::string_view text, size_t most = 256);

// An error message as a terminal can show it: on one line, as Printable; of a long one, which
// quotes what it was given, the beginning and the end.
std::string OneLine(absl::string_view message);

// The text as the value of a field of a log line: Printable, between double quotes, with a single
// quote for each double one of its own, so that no text looks like a further field.
std::string QuotedField(absl::string_view text, size_t most = 256);

// The text as one word of a POSIX shell: 'it'\''s'. Any bytes but NUL.
std::string ShellQuoted(absl::string_view text);

}  // namespace vpod::base
