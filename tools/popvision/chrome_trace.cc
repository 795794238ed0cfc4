#include "tools/popvision/chrome_trace.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {

absl::Status WriteChromeTrace(const pva::Report& report, const std::string& path) {
  if (const std::string why = WhyNoSteps(report); !why.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(report.path, ": there is nothing to trace. ", why));
  }
  using Object = nlohmann::ordered_json;
  const std::string unfinished = absl::StrCat(path, ".", getpid());
  std::ofstream file(unfinished, std::ios::binary);
  file << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool first = true;
  // One event at a time: a run may have millions.
  const auto add = [&](const Object& event) {
    file << (first ? "" : ",\n")
         << event.dump(-1, ' ', /*ensure_ascii=*/true, Object::error_handler_t::replace);
    first = false;
  };
  const auto microseconds = [&](uint64_t cycles) {
    return 1e6 * static_cast<double>(cycles) / report.target.clock_hz;
  };
  add({{"name", "process_name"},
       {"ph", "M"},
       {"pid", 0},
       {"args", {{"name", absl::StrCat("program ", report.program_name())}}}});
  for (uint32_t ipu = 0; ipu < report.steps.size(); ++ipu) {
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", 0},
         {"tid", ipu},
         {"args", {{"name", IpuName(ipu)}}}});
    for (const pva::Step& step : report.steps[ipu]) {
      const pva::Operation& operation = report.operations[step.operation];
      const auto event = [&](const std::string& name, const char* category, uint64_t from,
                             uint64_t to) {
        return Object{{"name", name},
                      {"cat", category},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", ipu},
                      {"ts", microseconds(from)},
                      {"dur", microseconds(to - from)}};
      };
      if (step.waiting > 0) add(event("waiting", "waiting", step.from, step.from + step.waiting));
      Object executed =
          event(operation.name, operation.phase.empty() ? "other" : operation.phase.c_str(),
                step.from + step.waiting, step.to);
      executed["args"] = {{"compute", operation.cycles.compute},
                          {"exchange", operation.cycles.exchange},
                          {"sync", operation.cycles.sync},
                          {"stage", operation.stage}};
      if (operation.remote_buffer) {
        executed["args"]["remote buffer"] = report.remote_buffers[*operation.remote_buffer].name;
        executed["args"]["bytes from streaming memory"] = operation.from_streaming_memory;
        executed["args"]["bytes to streaming memory"] = operation.to_streaming_memory;
      }
      if (operation.flops > 0) executed["args"]["flops"] = operation.flops;
      add(executed);
    }
  }
  file << "\n]}\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (file && !error) return absl::OkStatus();
  const std::string why = error ? error.message() : std::strerror(errno);
  std::filesystem::remove(unfinished, error);
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", why));
}

}  // namespace vpod::popvision
