// The management of a big POD through the programs that a site runs, which PATH has to name: boot
// and memory of a POD65536, partitions created beside bare SQLite commits on the same disk, long
// lists, and a thousand clients at once. PODs of its own lie under TMPDIR.
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ipuof/lease.h"
#include "client/popdist/job.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "tests/support/command.h"

namespace vpod {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kIpus = 65536;
constexpr int kPartitions = 10000, kCreations = 300;
constexpr uint32_t kClients = 1000, kClientsOfPartition = 64;  // the IPUs of an ILD

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "controller benchmark: error: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <class T>
T OrDie(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

double Milliseconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A percentile of measured milliseconds.
double Percentile(std::vector<double> values, size_t percent) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * percent / 100];
}
double Median(int repetitions, const std::function<void()>& work) {
  std::vector<double> values;
  for (int i = 0; i < repetitions; ++i) values.push_back(Milliseconds(work));
  return Percentile(values, 50);
}

void Run(const std::vector<std::string>& words) {
  const testing::Outcome outcome = testing::Command(words, {}).Wait(std::chrono::seconds(600));
  if (outcome.code == 0) return;
  Check(absl::InternalError(absl::StrCat(words[0], ": ", outcome.err)));
}

// A POD in a directory of its own, and the environment that leads to it.
class Pod {
 public:
  explicit Pod(uint32_t ipus) {
    std::string name = (fs::temp_directory_path() / "vpod-benchmark-XXXXXX").string();
    home_ = mkdtemp(name.data());
    const std::string port = absl::StrCat(20000 + getpid() % 10000);
    setenv("VPOD_HOME", home_.c_str(), 1);
    setenv("VIPU_CLI_API_HOST", "127.0.0.1", 1);
    setenv("VIPU_CLI_API_PORT", port.c_str(), 1);
    setenv("IPUOF_CONFIG_DIR", (home_ / "ipuof.conf.d").c_str(), 1);
    seconds_to_boot_ = Milliseconds([&] {
                         Run({"vpod", "up", "--pod", absl::StrCat(ipus), "--api-port", port});
                       }) /
                       1000;
  }
  ~Pod() {
    Run({"vpod", "down"});
    fs::remove_all(home_);
  }
  const fs::path& home() const { return home_; }
  double seconds_to_boot() const { return seconds_to_boot_; }
  // Resident memory of "vipu-server" or "vipu-agent".
  uint64_t Mebibytes(const std::string& daemon) const {
    std::string pid;
    std::ifstream(home_ / (daemon + ".pid")) >> pid;
    uint64_t pages = 0;
    std::ifstream("/proc/" + pid + "/statm") >> pages >> pages;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) >> 20;
  }

 private:
  fs::path home_;
  double seconds_to_boot_ = 0;
};

// Commits without a controller, for comparison: a row of a partition's size, written as the store
// writes (server/controller/store/store.cc).
class BareStore {
 public:
  explicit BareStore(const fs::path& directory) {
    const bool opened =
        sqlite3_open((directory / "bare.db").c_str(), &database_) == SQLITE_OK &&
        Execute(
            "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE objects (kind TEXT, id TEXT, data BLOB, PRIMARY KEY (kind, id))");
    if (!opened) Check(absl::InternalError(sqlite3_errmsg(database_)));
  }
  ~BareStore() { sqlite3_close(database_); }
  void Commit() {
    const std::string row = absl::StrCat("INSERT INTO objects VALUES ('partition', 'p", number_++,
                                         "', randomblob(256))");
    if (!Execute(row.c_str())) Check(absl::InternalError(sqlite3_errmsg(database_)));
  }

 private:
  bool Execute(const char* sql) {
    return sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  sqlite3* database_ = nullptr;
  int number_ = 0;
};

absl::Status Create(vipu::Client& client, const std::string& id, uint32_t size) {
  vipuuser::CreatePartitionRequest request;
  request.mutable_requirements()->set_id(id);
  request.mutable_requirements()->set_size(size);
  return client.CreatePartition(request);
}

void MeasureCreation(const char* pod, vipu::Client& client, BareStore& bare) {
  std::vector<double> created, committed;
  for (int i = 0; i < kCreations; ++i) {
    committed.push_back(Milliseconds([&] { bare.Commit(); }));
    created.push_back(Milliseconds([&] { Check(Create(client, "measured", 8)); }));
    Check(client.RemovePartition("measured"));
  }
  const double p50 = Percentile(created, 50), bare_p50 = Percentile(committed, 50);
  std::printf(
      "create partition, %s POD65536: p50 %.2f ms, p99 %.2f ms; bare SQLite commit p50 %.2f ms, "
      "p99 %.2f ms; ratio of p50 %.2f\n",
      pod, p50, Percentile(created, 99), bare_p50, Percentile(committed, 99), p50 / bare_p50);
}

// Nine tenths of the IPUs in kPartitions partitions of 1 to 16 IPUs.
void Fill(vipu::Client& client) {
  uint32_t used = 0;
  for (int number = 0; number < kPartitions; ++number) {
    const uint32_t size =
        used < kIpus / 10 * 9 ? 1u << (static_cast<uint32_t>(number) * 7919 % 5) : 1;
    Check(Create(client, absl::StrCat("fill", number), size));
    used += size;
  }
}

void MeasureBigPod() {
  const Pod pod(kIpus);
  std::printf("POD65536: up in %.2f s; vipu-server %lu MiB, vipu-agent %lu MiB\n",
              pod.seconds_to_boot(), pod.Mebibytes("vipu-server"), pod.Mebibytes("vipu-agent"));
  vipu::Client client(OrDie(vipu::DiscoverConfig({})));
  BareStore bare(pod.home());
  MeasureCreation("empty", client, bare);
  Fill(client);
  MeasureCreation("90 % full", client, bare);
  const double listed = Median(10, [&] { OrDie(client.ListPartitions()); });
  const double shown = Median(5, [] { Run({"vipu", "list", "partitions"}); });
  std::printf("%d partitions listed: %.1f ms by the call, %.1f ms by 'vipu list partitions'\n",
              kPartitions, listed, shown);
  std::printf("with them: vipu-server %lu MiB, vipu-agent %lu MiB\n", pod.Mebibytes("vipu-server"),
              pod.Mebibytes("vipu-agent"));
}

std::string PartitionOf(uint32_t client) { return absl::StrCat("p", client / kClientsOfPartition); }

// A client's process: attaches one IPU when `go` ends, says so, and detaches when `end` ends.
[[noreturn]] void Attend(uint32_t number, int go, int attached, int end) {
  const auto wait = [](int fd) {
    char none;
    (void)!read(fd, &none, 1);
  };
  setenv("IPUOF_VIPU_API_HOST", std::getenv("VIPU_CLI_API_HOST"), 1);
  setenv("IPUOF_VIPU_API_PORT", std::getenv("VIPU_CLI_API_PORT"), 1);
  setenv("IPUOF_VIPU_API_PARTITION_ID", PartitionOf(number).c_str(), 1);
  wait(go);
  {
    const auto partition = OrDie(vipu::FindActivePartition());
    ipuof::LeaseOptions options;
    options.device_id = number % kClientsOfPartition;
    options.job = popdist::ThisJobMember(1, 1);
    const auto lease = OrDie(ipuof::Lease::AttachParts(partition, options));
    (void)!write(attached, "a", 1);
    wait(end);
  }
  _exit(0);
}

struct Pipe {
  Pipe() { Check(pipe(fds) == 0 ? absl::OkStatus() : absl::InternalError("pipe")); }
  int read_end() const { return fds[0]; }
  int write_end() const { return fds[1]; }
  int fds[2];
};

// Processes of their own, as a site's; forked, so nothing of gRPC may run here before.
void MeasureClients() {
  const Pod pod(1024);
  for (uint32_t client = 0; client < kClients; client += kClientsOfPartition) {
    Run({"vipu-admin", "create", "partition", PartitionOf(client), "--size",
         absl::StrCat(kClientsOfPartition), "--reconfigurable"});
  }
  const uint64_t before = pod.Mebibytes("vipu-agent");
  const Pipe go, attached, end;
  std::vector<pid_t> clients;
  std::fflush(stdout);
  for (uint32_t number = 0; number < kClients; ++number) {
    const pid_t client = fork();
    if (client < 0) Check(absl::InternalError("fork"));
    if (client == 0) {
      close(go.write_end());
      close(end.write_end());
      Attend(number, go.read_end(), attached.write_end(), end.read_end());
    }
    clients.push_back(client);
  }
  close(attached.write_end());
  const double all = Milliseconds([&] {
    close(go.write_end());
    char one;
    for (uint32_t i = 0; i < kClients; ++i) {
      if (read(attached.read_end(), &one, 1) != 1)
        Check(absl::InternalError(absl::StrCat("only ", i, " clients attached")));
    }
  });
  std::printf(
      "%u clients (processes) at once on a POD1024: all attached in %.2f s; vipu-agent %lu "
      "MiB, %lu before\n",
      kClients, all / 1000, pod.Mebibytes("vipu-agent"), before);
  std::printf("with them: 'vipu list partitions' %.1f ms, 'gc-monitor --all-partitions' %.1f ms\n",
              Median(5,
                     [] {
                       Run({"vipu", "list", "partitions"});
                     }),
              Median(5, [] {
                Run({"gc-monitor", "--all-partitions"});
              }));
  const double gone = Milliseconds([&] {
    close(end.write_end());
    for (const pid_t client : clients) waitpid(client, nullptr, 0);
  });
  std::printf("all detached in %.2f s\n", gone / 1000);
}

}  // namespace
}  // namespace vpod

int main() {
  vpod::MeasureClients();
  vpod::MeasureBigPod();
}
