#include "client/launch/words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace vpod::launch {

absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote == '"' && i + 1 < text.size()) {
        word += text[++i];
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0)
    return absl::InvalidArgumentError(absl::StrCat("a quote is not closed in '", text, "'"));
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string QuotedCommand(const std::string& path, const std::vector<std::string>& arguments) {
  std::string text = path;
  for (const std::string& word : arguments) absl::StrAppend(&text, " '", word, "'");
  return text;
}

std::vector<char*> ExecWords(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace vpod::launch
