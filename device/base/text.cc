#include "device/base/text.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace vpod::base {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr absl::string_view kCut = "…";

// Length of the character at the beginning of `text`, 0 if there is none; `code` is its number.
size_t NextCharacter(absl::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  if (byte(0) < 0x80) {
    code = byte(0);
    return 1;
  }
  const size_t length = byte(0) < 0xc2   ? 0
                        : byte(0) < 0xe0 ? 2
                        : byte(0) < 0xf0 ? 3
                        : byte(0) < 0xf5 ? 4
                                         : 0;
  if (length == 0 || text.size() < length) return 0;
  code = byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[length] || code > 0x10ffff || surrogate ? 0 : length;
}

bool IsForDisplay(uint32_t code) {
  const auto within = [code](uint32_t first, uint32_t last) {
    return code >= first && code <= last;
  };
  return !(code < 0x20 || within(0x7f, 0x9f) || within(0x200e, 0x200f) || within(0x2028, 0x202e) ||
           within(0x2066, 0x2069) || code == 0x061c || code == 0xfeff);
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  uint32_t code = 0;
  while (!text.empty()) {
    const size_t length = NextCharacter(text, code);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool IsTextLine(absl::string_view text) {
  return IsUtf8(text) && Printable(text, text.size()) == text;
}

bool IsHeaderWord(absl::string_view text, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 0x7f && c != '|';
  });
}

absl::Status CheckUtf8(absl::string_view field, absl::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " '", absl::CHexEscape(text.substr(0, 64)), "' is not UTF-8 text"));
}

absl::Status CheckHeaderWord(absl::string_view field, absl::string_view text) {
  if (IsHeaderWord(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " '", absl::CHexEscape(text.substr(0, 64)),
                                                 "' must have ", kHeaderWordRule));
}

std::string Printable(absl::string_view text, size_t most) {
  std::string shown;
  uint32_t code = 0;
  while (!text.empty()) {
    const size_t length = NextCharacter(text, code);
    const absl::string_view piece =
        length == 0 || !IsForDisplay(code) ? kReplacement : text.substr(0, length);
    if (shown.size() + piece.size() > most) return absl::StrCat(shown, kCut);
    absl::StrAppend(&shown, piece);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return shown;
}

std::string OneLine(absl::string_view message) {
  constexpr size_t kHalf = 1000;
  if (message.size() <= 2 * kHalf) return Printable(message, std::string::npos);
  absl::string_view end = message.substr(message.size() - kHalf);
  while (!end.empty() && (end[0] & 0xC0) == 0x80) end.remove_prefix(1);  // a character goes on
  return absl::StrCat(Printable(message, kHalf), Printable(end, std::string::npos));
}

std::string QuotedField(absl::string_view text, size_t most) {
  return absl::StrCat("\"", absl::StrReplaceAll(Printable(text, most), {{"\"", "'"}}), "\"");
}

std::string ShellQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace vpod::base
