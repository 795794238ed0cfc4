// poprun's log: "HH:MM:SS.mmm <pid> POPRUN [L] message" on stderr.
#pragma once

#include <string>

namespace vpod::launch {

class Log {
 public:
  // 0 shows warnings and errors, 1 info, 2 debug, 3 trace; below 0 less.
  explicit Log(int verbosity) : verbosity_(verbosity) {}
  void Debug(const std::string& message) const { Write(2, 'D', message); }
  void Info(const std::string& message) const { Write(1, 'I', message); }
  void Warning(const std::string& message) const { Write(0, 'W', message); }
  int verbosity() const { return verbosity_; }

 private:
  void Write(int level, char letter, const std::string& message) const;
  const int verbosity_;
};

}  // namespace vpod::launch
