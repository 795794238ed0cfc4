#include "client/launch/output_filter.h"

namespace vpod::launch {
namespace {

constexpr size_t kLongestTag = 48;

// Length of a tag "[1,0]<stdout>:" at the beginning of `text`: 0 when there is none, npos when it
// may still become one.
size_t TagLength(const std::string& text, uint32_t& rank) {
  size_t i = 0;
  const auto digits = [&](uint32_t& value) {
    const size_t start = i;
    value = 0;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9')
      value = value * 10 + static_cast<uint32_t>(text[i++] - '0');
    return i > start;
  };
  uint32_t job = 0;
  if (text[i++] != '[') return 0;
  if (i < text.size() && !digits(job)) return 0;
  if (i < text.size() && text[i++] != ',') return 0;
  if (i < text.size() && !digits(rank)) return 0;
  if (i >= text.size()) return text.size() < kLongestTag ? std::string::npos : 0;
  const std::string rest = text.substr(i);
  for (const std::string end : {"]<stdout>:", "]<stderr>:", "]<stddiag>:"}) {
    if (rest.compare(0, end.size(), end) == 0) return i + end.size();
    if (end.compare(0, rest.size(), rest) == 0) return std::string::npos;
  }
  return 0;
}

}  // namespace

std::string OutputFilter::Pass(const std::string& data) {
  held_ += data;
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    uint32_t rank = 0;
    const size_t tag = held_[at] == '[' ? TagLength(held_.substr(at, kLongestTag), rank) : 0;
    if (tag == std::string::npos) break;  // may become a tag with more data
    if (tag > 0) {
      showing_ = rank == rank_;
      if (showing_) out += held_.substr(at, tag);
      at += tag;
      at_line_start_ = false;
      continue;
    }
    if (at_line_start_) showing_ = true;  // untagged: mpirun's own
    const char c = held_[at++];
    if (showing_) out += c;
    at_line_start_ = c == '\n';
  }
  held_.erase(0, at);
  return out;
}

std::string OutputFilter::Finish() {
  std::string rest = showing_ || at_line_start_ ? held_ : "";
  held_.clear();
  return rest;
}

}  // namespace vpod::launch
