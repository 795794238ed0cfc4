#include "client/launch/mpirun.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/vipu/config.h"
#include "device/base/unique_fd.h"

namespace vpod::launch {
namespace {

// `-x` words of a context: each name once, at its first place and with its last value.
class ExportList {
 public:
  void Add(const std::string& name, const std::optional<std::string>& value) {
    if (values_.insert_or_assign(name, value).second) order_.push_back(name);
  }
  void AppendTo(std::vector<std::string>& words) const {
    for (const std::string& name : order_) {
      const auto& value = values_.at(name);
      words.push_back("-x");
      words.push_back(value.has_value() ? absl::StrCat(name, "=", *value) : name);
    }
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::optional<std::string>> values_;
};

// The POD's own variables. Instances on other hosts do not inherit them.
std::vector<std::string> PodVariables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (absl::StartsWith(name, "VPOD_") || absl::StartsWith(name, "VIPU_CLI_"))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "-H a:4,b:4"
void AddHosts(absl::Span<const std::string> hosts, uint32_t slots,
              std::vector<std::string>& words) {
  words.push_back("-H");
  words.push_back(absl::StrJoin(hosts, ",", [&](std::string* out, const std::string& host) {
    absl::StrAppend(out, host, ":", slots);
  }));
}

void AddContext(const Options& options, const Layout& layout,
                const std::optional<MpiTarget>& target, bool numa_wrapper, uint32_t instance,
                std::vector<std::string>& words) {
  words.insert(words.end(), {"-np", "1"});
  if (layout.this_host_follows) {
    AddHosts({layout.hosts[layout.host_of(instance)]}, layout.instances_per_host(), words);
  }
  ExportList exports;
  const auto number = [&](const char* name, uint32_t value) {
    exports.Add(name, absl::StrCat(value));
  };
  number("POPDIST_NUM_TOTAL_REPLICAS", layout.replicas);
  number("POPDIST_NUM_IPUS_PER_REPLICA", layout.ipus_per_replica);
  number("POPDIST_NUM_LOCAL_REPLICAS", layout.local_replicas());
  number("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", 1);
  if (target.has_value() && target->node_device_id.has_value()) {
    number("POPDIST_NODE_DEVICE_ID", *target->node_device_id);
  }
  if (!options.executable_cache_path.empty()) {
    exports.Add("POPDIST_EXECUTABLE_CACHE_PATH", options.executable_cache_path);
  }
  number("POPDIST_REPLICA_INDEX_OFFSET", instance * layout.local_replicas());
  number("POPDIST_LOCAL_INSTANCE_INDEX", layout.local_index(instance));
  if (target.has_value()) {
    exports.Add("IPUOF_VIPU_API_HOST", target->server_host);
    number("IPUOF_VIPU_API_PORT", target->server_port);
    exports.Add("IPUOF_VIPU_API_PARTITION_ID", target->partition_id);
    number("IPUOF_VIPU_API_TIMEOUT", options.vipu_server_timeout);
    if (!target->node_device_id.has_value()) number("IPUOF_VIPU_API_GCD_ID", instance);
  }
  const std::string log_level = vipu::Environment("IPUOF_LOG_LEVEL");
  exports.Add("IPUOF_LOG_LEVEL", log_level.empty() ? "WARN" : log_level);
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"})
    exports.Add(name, std::nullopt);
  if (!vipu::Environment("POPLAR_ENGINE_OPTIONS").empty())
    exports.Add("POPLAR_ENGINE_OPTIONS", std::nullopt);
  std::vector<std::string> other_words;
  for (size_t i = 0; i < options.mpi_local_args.size(); ++i) {
    const std::string& word = options.mpi_local_args[i];
    if (word != "-x" || i + 1 == options.mpi_local_args.size()) {
      other_words.push_back(word);
      continue;
    }
    const std::string& entry = options.mpi_local_args[++i];
    const size_t equals = entry.find('=');
    exports.Add(entry.substr(0, equals),
                equals == std::string::npos ? std::nullopt
                                            : std::optional<std::string>(entry.substr(equals + 1)));
  }
  if (layout.hosts_given) {
    for (const std::string& name : PodVariables()) exports.Add(name, std::nullopt);
  }
  if (target.has_value()) exports.Add("POPLAR_TARGET_OPTIONS", target->target_options);
  exports.AppendTo(words);
  words.insert(words.end(), other_words.begin(), other_words.end());
  if (numa_wrapper) words.push_back("poprun_numa_wrapper");
  words.insert(words.end(), options.program.begin(), options.program.end());
}

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

void Forward(base::UniqueFd from, int to, uint32_t rank) {
  OutputFilter filter(rank);
  char buffer[1 << 16];
  const auto print = [to](const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = write(to, text.data() + at, text.size() - at);
      if (written <= 0) return;
      at += static_cast<size_t>(written);
    }
  };
  while (true) {
    const ssize_t n = read(from.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    print(filter.Pass(std::string(buffer, static_cast<size_t>(n))));
  }
  print(filter.Finish());
}

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  return signals;
}

}  // namespace

std::vector<std::string> MpirunArguments(const Options& options, const Layout& layout,
                                         const std::optional<MpiTarget>& target,
                                         bool numa_wrapper) {
  std::vector<std::string> words = options.mpi_global_args;
  if (layout.hosts_given && !options.host_subnet.empty()) {
    for (const char* parameter : {"btl_tcp_if_include", "oob_tcp_if_include"}) {
      words.insert(words.end(), {"--mca", parameter, options.host_subnet});
    }
  }
  // Named together, because inside a Slurm job mpirun would rather use srun.
  if (layout.hosts_given && !options.launch_agent.empty()) {
    words.insert(words.end(),
                 {"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", options.launch_agent});
  }
  if (options.debug) words.insert(words.end(), {"--display-allocation", "--display-map"});
  words.insert(words.end(), {"--bind-to", "none", "--tag-output"});
  if (options.allow_run_as_root) words.push_back("--allow-run-as-root");
  if (!layout.hosts_given) {
    words.push_back("--oversubscribe");  // Open MPI counts one slot a core
  } else if (!layout.this_host_follows) {
    AddHosts(layout.hosts, layout.instances_per_host(), words);
  }
  for (uint32_t instance = 0; instance < layout.instances; ++instance) {
    if (instance > 0) words.push_back(":");
    AddContext(options, layout, target, numa_wrapper, instance, words);
  }
  return words;
}

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

void BlockSignals() {
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int PendingSignal() {
  sigset_t pending;
  sigpending(&pending);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (sigismember(&pending, number) == 1) return number;
  }
  return 0;
}

// Not Boost.Process: the child needs a parent-death signal, a process group and its signal mask
// restored between fork and exec, which is all there is to this function.
absl::StatusOr<MpirunResult> RunMpirun(const std::string& path,
                                       const std::vector<std::string>& arguments,
                                       std::optional<uint32_t> only_output_from,
                                       const std::function<void(int pid)>& started) {
  // Forwarded by name: mpirun warns about those that do not exist. Empty means the same to their
  // readers.
  for (const char* name : {"LD_LIBRARY_PATH", "PYTHONPATH"}) setenv(name, "", 0);
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int failure_pipe[2], out_pipe[2] = {-1, -1}, error_pipe[2] = {-1, -1};
  if (pipe2(failure_pipe, O_CLOEXEC) != 0 ||
      (only_output_from.has_value() &&
       (pipe2(out_pipe, O_CLOEXEC) != 0 || pipe2(error_pipe, O_CLOEXEC) != 0))) {
    return absl::UnavailableError(std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError(std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);
    const sigset_t signals = HandledSignals();
    sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    if (only_output_from.has_value()) {
      dup2(out_pipe[1], STDOUT_FILENO);
      dup2(error_pipe[1], STDERR_FILENO);
    }
    execvp(argv[0], argv.data());
    const int error = errno;
    (void)!write(failure_pipe[1], &error, sizeof(error));
    _exit(127);
  }
  setpgid(pid, pid);
  close(failure_pipe[1]);
  int error = 0;
  const bool failed = read(failure_pipe[0], &error, sizeof(error)) == sizeof(error);
  close(failure_pipe[0]);
  std::vector<std::thread> forwarders;
  if (only_output_from.has_value()) {
    close(out_pipe[1]);
    close(error_pipe[1]);
    forwarders.emplace_back(Forward, base::UniqueFd(out_pipe[0]), STDOUT_FILENO, *only_output_from);
    forwarders.emplace_back(Forward, base::UniqueFd(error_pipe[0]), STDERR_FILENO,
                            *only_output_from);
  }
  if (!failed) started(pid);

  MpirunResult result;
  const sigset_t signals = HandledSignals();
  timespec kill_after{10, 0};
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    const int number = result.signal == 0 ? sigwaitinfo(&signals, nullptr)
                                          : sigtimedwait(&signals, nullptr, &kill_after);
    if (number == SIGCHLD || (number < 0 && errno == EINTR)) continue;
    if (number < 0) {
      kill(-pid, SIGKILL);  // ten seconds after the first signal
    } else {
      if (result.signal == 0) result.signal = number;
      kill(-pid, number);
    }
  }
  for (std::thread& forwarder : forwarders) forwarder.join();
  if (failed) return absl::UnavailableError(std::strerror(error));
  if (result.signal == 0 && WIFSIGNALED(status)) result.killed_by = WTERMSIG(status);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace vpod::launch
