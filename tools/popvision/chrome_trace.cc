#include "tools/popvision/chrome_trace.h"

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/popvision/output_file.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {

namespace {

using Object = nlohmann::ordered_json;

// Writes one event at a time: a run may have millions.
class EventWriter {
 public:
  EventWriter(const pva::Report& report, std::ostream& out) : report_(report), out_(out) {}

  void WriteAll() {
    out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    Write({{"name", "process_name"},
           {"ph", "M"},
           {"pid", 0},
           {"args", {{"name", absl::StrCat("program ", report_.program_name())}}}});
    for (uint32_t ipu = 0; ipu < report_.steps.size(); ++ipu) {
      Write({{"name", "thread_name"},
             {"ph", "M"},
             {"pid", 0},
             {"tid", ipu},
             {"args", {{"name", IpuName(ipu)}}}});
      for (const pva::Step& step : report_.steps[ipu]) WriteStep(ipu, step);
      const uint64_t end = report_.steps[ipu].empty() ? 0 : report_.steps[ipu].back().to;
      WriteWaiting(ipu, end, report_.planned_cycles());
    }
    out_ << "\n]}\n";
  }

 private:
  void WriteStep(uint32_t ipu, const pva::Step& step) {
    const pva::Operation& operation = report_.operations[step.operation];
    const uint64_t begin = step.from + step.waiting;
    WriteWaiting(ipu, step.from, begin);
    Object executed = Span(ipu, operation.name, operation.phase.empty() ? "other" : operation.phase,
                           begin, step.to);
    Object& args = executed["args"];
    args = {{"compute", operation.cycles.compute},
            {"exchange", operation.cycles.exchange},
            {"sync", operation.cycles.sync},
            {"stage", operation.stage}};
    if (operation.remote_buffer) {
      args["remote buffer"] = report_.remote_buffers[*operation.remote_buffer].name;
      args["bytes from streaming memory"] = operation.from_streaming_memory;
      args["bytes to streaming memory"] = operation.to_streaming_memory;
    }
    if (operation.flops > 0) args["flops"] = operation.flops;
    Write(executed);
  }

  void WriteWaiting(uint32_t ipu, uint64_t from, uint64_t to) {
    if (to > from) Write(Span(ipu, "waiting", "waiting", from, to));
  }

  // An event that lasts, between two times in cycles.
  Object Span(uint32_t ipu, const std::string& name, const std::string& category, uint64_t from,
              uint64_t to) const {
    const auto microseconds = [&](uint64_t cycles) {
      return 1e6 * static_cast<double>(cycles) / report_.target.clock_hz;
    };
    return {{"name", name},
            {"cat", category},
            {"ph", "X"},
            {"pid", 0},
            {"tid", ipu},
            {"ts", microseconds(from)},
            {"dur", microseconds(to - from)}};
  }

  void Write(const Object& event) {
    out_ << std::exchange(separator_, ",\n")
         << event.dump(-1, ' ', /*ensure_ascii=*/true, Object::error_handler_t::replace);
  }

  const pva::Report& report_;
  std::ostream& out_;
  const char* separator_ = "";
};

}  // namespace

absl::Status WriteChromeTrace(const pva::Report& report, const std::string& path) {
  if (const std::string why = WhyNoSteps(report); !why.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(report.path, ": there is nothing to trace. ", why));
  }
  return WriteOutput(path, [&](std::ostream& out) { EventWriter(report, out).WriteAll(); });
}

}  // namespace vpod::popvision
