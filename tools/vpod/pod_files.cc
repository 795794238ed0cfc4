// What a POD keeps in its directory: access to it, and how it becomes what a backup says.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "client/vipu/ipuof_json.h"
#include "device/base/file.h"
#include "device/base/object_id.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "tools/vpod/backup.h"
#include "tools/vpod/daemons.h"
#include "tools/vpod/pod.h"
#include "tools/vpod/restore_attempt.h"
#include "tools/vpod/run_program.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kServer[] = "vipu-server";

// Where vipu-server --init says the administrator's key.
constexpr char kKeyLabel[] = "Access Key is: ";

// The POD's own and those of its users.
bool IsClientFile(const std::string& name) { return absl::EndsWith(name, vipu::kPodClientFile); }
bool IsIpuofDirectory(const std::string& name) {
  return absl::EndsWith(name, vipu::kPodIpuofDirectory);
}

// Partitions that the IPUoF files of a directory are for.
std::set<std::string> PartitionsOfFiles(const std::string& directory) {
  std::set<std::string> partitions;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const auto file = vipu::ParseIpuofJson(base::ReadFile(entry.path().string()));
    if (!file.ok()) continue;
    if (const std::string id = vipu::Attribute(*file, "Partition Id"); !id.empty())
      partitions.insert(id);
  }
  return partitions;
}

// User and access key of a client file. The rest of it follows from the POD.
struct Account {
  std::string user, key;
};
Account AccountIn(const std::string& client_file) {
  const std::string text = base::ReadFile(client_file);
  const auto value = [&](const char* name) {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {  // as vipu::HclText writes them
      if (absl::ConsumePrefix(&line, absl::StrCat(name, "=\"")) && absl::ConsumeSuffix(&line, "\""))
        return std::string(line);
    }
    return std::string();
  };
  return {value("api-user-id"), value("api-access-key")};
}

absl::StatusOr<base::Tls> CertificatesIn(const std::string& directory, const std::string& role) {
  const std::string at = absl::StrCat(directory, "/", role, "/");
  return base::ReadTls({at + "ca.crt", at + role + ".crt", at + role + ".key"});
}

// vipu-server of this POD with options that have it end by itself.
absl::StatusOr<std::string> RunServer(const std::vector<std::string>& options) {
  VPOD_ASSIGN_OR_RETURN(const std::string server, FindProgram(kServer));
  std::vector<std::string> command = {server, "--config", "/dev/null", "--log-level", "error"};
  command.insert(command.end(), options.begin(), options.end());
  return RunProgram(command);
}

absl::StatusOr<std::string> RestoreStorage(const std::string& backup, const std::string& storage) {
  return RunServer({"--storage", storage, "--restore", backup});
}

std::string Described(const PodShape& shape) {
  return absl::StrCat("POD", shape.ipus, ", ", shape.machine_type, ", port ", shape.api_port,
                      ", addresses ", shape.addresses, shape.secure ? ", secure" : "",
                      shape.agent_per_machine ? ", agents processes" : "",
                      shape.described_clusters ? ", clusters of a file" : "");
}

absl::Status Copy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::remove_all(to, error);
  fs::copy(from, to, fs::copy_options::recursive, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot copy ", from.string(), " to ", to.string(), ": ", error.message()));
}

}  // namespace

Pod::UserKey Pod::KeyOf(const std::string& user) const {
  std::error_code error;
  if (!fs::exists(UserConfig(user), error)) return UserKey::kNoFile;
  return AccountIn(UserConfig(user)).key.empty() ? UserKey::kNone : UserKey::kThere;
}

absl::Status Pod::TakeAdministrator(PodShape& shape) const {
  Account account = AccountIn(ClientConfig());
  if (account.key.empty()) {
    if (shape.unfinished) return absl::OkStatus();  // the key is not made yet
    if (access(ClientConfig().c_str(), R_OK) != 0 && errno != ENOENT) {
      return absl::DataLossError(
          absl::StrCat("cannot read ", ClientConfig(), ": ", std::strerror(errno)));
    }
    return absl::DataLossError(
        absl::StrCat(ClientConfig(),
                     " has no access key of the administrator; put the file back, or 'vpod "
                     "restore' a backup"));
  }
  auto tls = CertificatesIn(CertificatesDirectory(), "client");
  if (!tls.ok()) return absl::DataLossError(tls.status().message());
  shape.administrator.tls = *std::move(tls);
  shape.administrator.user_id = std::move(account.user);
  shape.administrator.access_key = std::move(account.key);
  return absl::OkStatus();
}

absl::Status Pod::SetUpAccess(PodShape& shape) const {
  VPOD_ASSIGN_OR_RETURN(
      const std::string said,
      RunServer({"--init", "--secure", "--storage", Storage(), "--certs-dir",
                 CertificatesDirectory(), "--default-user-id", vipu::OsUserName()}));
  const size_t label = said.find(kKeyLabel);
  if (label == std::string::npos)
    return absl::InternalError("vipu-server --init has made no access key");
  const size_t begin = label + sizeof(kKeyLabel) - 1;
  shape.administrator.user_id = vipu::OsUserName();
  shape.administrator.access_key = said.substr(begin, said.find('\n', begin) - begin);
  VPOD_ASSIGN_OR_RETURN(shape.administrator.tls, CertificatesIn(CertificatesDirectory(), "client"));
  return WriteFiles(shape);
}

base::TlsFiles Pod::ServerCertificate() const {
  const std::string at = CertificatesDirectory() + "/server/";
  return {at + "ca.crt", at + "server.crt", at + "server.key"};
}

std::vector<std::string> Pod::Files() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(home_, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kShapeFile || IsClientFile(name) || IsIpuofDirectory(name) ||
        entry.path() == fs::path(CertificatesDirectory()))
      names.push_back(name);
  }
  return names;
}

absl::Status Pod::CopyFiles(const std::string& to) const {
  for (const std::string& name : Files())
    VPOD_RETURN_IF_ERROR(Copy(home_ + "/" + name, to + "/" + name));
  return absl::OkStatus();
}

// Client files name certificates by their paths.
absl::Status Pod::RenewClientFiles(const PodShape& shape) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(home_, error)) {
    if (!IsClientFile(entry.path().filename().string())) continue;
    const Account account = AccountIn(entry.path());
    if (account.key.empty()) continue;  // WriteFiles writes it
    vipu::ClientConfig config = ApiOf(shape);
    config.user_id = account.user;
    config.access_key = account.key;
    VPOD_RETURN_IF_ERROR(vipu::WriteSecretHcl(entry.path(), config));
  }
  return absl::OkStatus();
}

// A storage belongs to machines by their addresses, and certificates to one authority.
absl::Status Pod::CheckIsSame(const Pod& other, const PodShape& wanted) const {
  const std::string there = Described(wanted);
  // A restore of this POD that has not ended has passed these checks, and changed what they read.
  if (HalfRestoredPod(home_) == there) return absl::OkStatus();
  const auto existing = ShapeAsItIs();
  if (absl::IsNotFound(existing.status())) {
    if (KeepPort(wanted.api_port).valid()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("port ", wanted.api_port,
                                               " is in use, which is that of the POD of the "
                                               "backup"));
  }
  VPOD_RETURN_IF_ERROR(existing.status());
  const auto authority = [](const Pod& pod) { return base::ReadFile(pod.ServerCertificate().ca); };
  const std::string here = Described(*existing);
  if (here == there && existing->cluster_topology == wanted.cluster_topology &&
      authority(*this) == authority(other))
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      home_, " holds another POD (", here, ") than the backup (", there,
      here == there ? ", other certificates" : "", "); 'vpod down' makes room for it"));
}

absl::StatusOr<std::string> Pod::Replace(const std::string& directory, RestoreAttempt& attempt) {
  const Pod other(directory);
  VPOD_ASSIGN_OR_RETURN(const PodShape wanted, other.Shape());
  const std::string backup = absl::StrCat(directory, "/", kStoreFile);
  // Tried on a storage of its own: what cannot be restored is refused while all is as it was.
  VPOD_RETURN_IF_ERROR(RestoreStorage(backup, directory + "/tried.db").status());
  VPOD_RETURN_IF_ERROR(CheckIsSame(other, wanted));
  VPOD_RETURN_IF_ERROR(attempt.BeginChange(Described(wanted)));
  absl::Cleanup remove = [&] {
    if (!attempt.is_new()) return;
    RemoveState();
    attempt.TakeBack();
  };
  StopDaemon(ServerPidFile(), kServer);
  auto said = RestoreStorage(backup, Storage());
  if (!said.ok()) {
    attempt.TakeBack();  // a storage is replaced as a whole, or says itself that it is not
    return said;
  }
  VPOD_RETURN_IF_ERROR(other.CopyFiles(home_));
  PodShape shape = wanted;
  if (shape.secure) VPOD_RETURN_IF_ERROR(TakeAdministrator(shape));
  VPOD_RETURN_IF_ERROR(RenewClientFiles(shape));
  VPOD_RETURN_IF_ERROR(WriteFiles(shape));
  std::move(remove).Cancel();
  attempt.Finish();
  return said;
}

void Pod::RemoveState() const {
  std::error_code error;
  // The database goes first: SQLite ignores a log without one, but would read one without its log.
  fs::remove(Storage(), error);
  std::vector<fs::path> files = {ClientConfig(), home_ + "/" + kShapeFile};
  for (const auto& entry : fs::directory_iterator(home_, error)) {
    // The log, and storages that a restore has replaced.
    if (absl::StartsWith(entry.path().string(), Storage())) files.push_back(entry.path());
    // Keys and files of users that the POD forgets.
    const std::string name = entry.path().filename().string();
    if (IsClientFile(name) || IsIpuofDirectory(name)) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove_all(file, error);
  fs::remove_all(CertificatesDirectory(), error);
  // While files of a restore are left, so is its mark.
  fs::remove(absl::StrCat(home_, "/", kRestoreMark), error);
}

absl::Status Pod::RenewIpuofFilesOf(const std::string& user, const PodShape& shape) const {
  const std::string directory = IpuofDirectoryOf(user);
  setenv("IPUOF_CONFIG_DIR", directory.c_str(), /*overwrite=*/1);  // where files are written
  VPOD_RETURN_IF_ERROR(vipu::CheckIpuofDirectory());
  vipu::ClientConfig config = ApiOf(shape);
  config.user_id = user;
  config.access_key = AccountIn(UserConfig(user)).key;
  // Before the list is asked for: what somebody creates meanwhile is none of these.
  std::set<std::string> others = PartitionsOfFiles(directory);
  const auto partitions =
      vipu::Client(config, std::chrono::seconds(2)).ListPartitions(/*with_devices=*/true);
  if (!partitions.ok()) return absl::OkStatus();  // a call that needs the controller says why
  for (const vipuuser::Partition& partition : *partitions) {
    const uint32_t gcds = partition.requirements().num_gcds();
    const bool has_devices = gcds > 0 && static_cast<uint32_t>(partition.gcds_size()) >= gcds;
    // The controller gives keys to those only who may use the devices.
    const bool usable = has_devices && !partition.gcds(0).fabric_key().empty();
    if (usable || !has_devices) others.erase(partition.requirements().id());
    if (usable) VPOD_RETURN_IF_ERROR(vipu::WriteIpuofFiles(partition, config.address()));
  }
  for (const std::string& partition : others) vipu::RemoveIpuofFiles(partition);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Pod::EnvironmentText(const PodShape& shape,
                                                 const std::string& user) const {
  std::vector<std::pair<const char*, std::string>> variables = {
      {"VPOD_HOME", home_},
      {vipu::kEnvironmentHome, home_},
      {"VIPU_CLI_API_HOST", "127.0.0.1"},
      {"VIPU_CLI_API_PORT", absl::StrCat(shape.api_port)},
      {"IPUOF_CONFIG_DIR", user.empty() ? IpuofDirectory() : IpuofDirectoryOf(user)}};
  if (const absl::Status id = base::CheckObjectId(user); !user.empty() && !id.ok())
    return absl::InvalidArgumentError(absl::StrCat("--user: ", id.message()));
  if (!user.empty() && KeyOf(user) != UserKey::kThere) {
    return absl::NotFoundError(absl::StrCat("no user ", user, " has a key in ", home_,
                                            "; a file for 'vpod up -f' describes users"));
  }
  // Whose key tools show.
  if (!user.empty() || shape.secure)
    variables.emplace_back("VIPU_CLI_CONFIG", user.empty() ? ClientConfig() : UserConfig(user));
  std::string text;
  for (const auto& [name, value] : variables)
    absl::StrAppend(&text, "export ", name, "=", base::ShellQuoted(value), "\n");
  return text;
}

}  // namespace vpod::tools
