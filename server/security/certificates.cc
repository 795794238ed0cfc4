#include "server/security/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/openssl.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/base/tls.h"
#include "device/base/unique_fd.h"

namespace vpod::security {
namespace {

namespace fs = std::filesystem;
using base::OwnedBio;
using base::OwnedCertificate;
using base::OwnedKey;

constexpr long kValidSeconds = 10L * 365 * 24 * 3600;

// A key with its certificate.
struct Identity {
  OwnedKey key;
  OwnedCertificate certificate;
};

// Fields in which certificates differ.
struct Subject {
  const char* common_name;
  const char* basic_constraints;
  const char* key_usage;
  const char* extended_key_usage;    // null: none
  std::string subject_alternatives;  // empty: none
};

bool AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// Issued by `issuer`, or by itself when null.
absl::StatusOr<Identity> Issue(const Subject& subject, const Identity* issuer) {
  Identity identity{OwnedKey(EVP_EC_gen("P-256")), OwnedCertificate(X509_new())};
  X509* certificate = identity.certificate.get();
  const Identity& signer = issuer == nullptr ? identity : *issuer;
  const std::string serial = base::RandomBytes(16);
  using OwnedNumber = std::unique_ptr<BIGNUM, base::FreeWith<BN_free>>;
  const OwnedNumber number(BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()),
                                     static_cast<int>(serial.size()), nullptr));
  const bool good =
      identity.key != nullptr && certificate != nullptr && X509_set_version(certificate, 2) == 1 &&
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr &&
      // An hour back: clocks of hosts differ a little.
      X509_gmtime_adj(X509_getm_notBefore(certificate), -3600) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(certificate), kValidSeconds) != nullptr &&
      X509_set_pubkey(certificate, identity.key.get()) == 1 &&
      X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(subject.common_name), -1,
                                 -1, 0) == 1 &&
      X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate.get())) == 1;
  bool extended = good;
  const auto extend = [&](int nid, const char* value) {
    extended = extended && AddExtension(certificate, signer.certificate.get(), nid, value);
  };
  extend(NID_basic_constraints, subject.basic_constraints);
  extend(NID_key_usage, subject.key_usage);
  extend(NID_subject_key_identifier, "hash");
  if (issuer != nullptr) extend(NID_authority_key_identifier, "keyid");
  if (subject.extended_key_usage != nullptr) extend(NID_ext_key_usage, subject.extended_key_usage);
  if (!subject.subject_alternatives.empty())
    extend(NID_subject_alt_name, subject.subject_alternatives.c_str());
  if (!extended || X509_sign(certificate, signer.key.get(), EVP_sha256()) == 0) {
    return absl::InternalError(absl::StrCat("cannot make the certificate ", subject.common_name));
  }
  return identity;
}

// This host's names and addresses, and `more`, as OpenSSL's configuration writes them.
std::string AlternativeNames(const std::vector<std::string>& more) {
  std::set<std::string> hosts = {base::kAgentName, "localhost", "127.0.0.1", "::1"};
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0') hosts.insert(name);
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (each->ifa_addr->sa_family == AF_INET) {
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text,
                  sizeof(text));
      } else if (each->ifa_addr->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr, text,
                  sizeof(text));
      }
      if (text[0] != '\0') hosts.insert(text);
    }
    freeifaddrs(interfaces);
  }
  hosts.insert(more.begin(), more.end());
  return absl::StrJoin(hosts, ",", [](std::string* out, const std::string& host) {
    in6_addr address;
    const bool is_address = inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                            inet_pton(AF_INET6, host.c_str(), &address) == 1;
    absl::StrAppend(out, is_address ? "IP:" : "DNS:", host);
  });
}

std::string Pem(const OwnedBio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}
std::string Pem(const OwnedCertificate& certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate.get());
  return Pem(bio);
}
std::string Pem(const OwnedKey& key) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return Pem(bio);
}

absl::Status WriteFile(const std::string& path, mode_t mode, const std::string& text) {
  const base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid() ||
      write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status WriteIdentity(const std::string& directory, const std::string& name,
                           const Identity& authority, const Identity& identity) {
  const std::string folder = absl::StrCat(directory, "/", name);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot create ", folder, ": ", error.message()));
  VPOD_RETURN_IF_ERROR(WriteFile(folder + "/ca.crt", 0644, Pem(authority.certificate)));
  VPOD_RETURN_IF_ERROR(
      WriteFile(absl::StrCat(folder, "/", name, ".crt"), 0644, Pem(identity.certificate)));
  return WriteFile(absl::StrCat(folder, "/", name, ".key"), 0600, Pem(identity.key));
}

// Refuses anything but names and addresses, because hosts go into a certificate's configuration.
absl::Status CheckHosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    const bool good = !host.empty() && host.size() <= 253 &&
                      host.find_first_not_of(
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789.-:*") == std::string::npos;
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tls-hosts: '", base::Printable(host),
                       "' is not a name or address; give 1 to 253 letters, digits and '.-:*'"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNoCertificates(const std::string& directory) {
  for (const char* name : {"/server", "/client"}) {
    std::error_code error;
    const std::string folder = directory + name;
    if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "the directory ", folder, " holds certificates already; remove them to make new ones"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCanGenerate(const std::string& directory,
                              const std::vector<std::string>& more_hosts) {
  VPOD_RETURN_IF_ERROR(CheckHosts(more_hosts));
  return CheckNoCertificates(directory);
}

absl::Status GenerateCertificates(const std::string& directory,
                                  const std::vector<std::string>& more_hosts) {
  VPOD_RETURN_IF_ERROR(CheckCanGenerate(directory, more_hosts));
  VPOD_ASSIGN_OR_RETURN(const Identity authority,
                        Issue({"V-IPU POD authority", "critical,CA:TRUE,pathlen:0",
                               "critical,keyCertSign,cRLSign", nullptr, ""},
                              nullptr));
  VPOD_ASSIGN_OR_RETURN(const Identity server,
                        Issue({"vipu-server", "critical,CA:FALSE", "critical,digitalSignature",
                               "serverAuth,clientAuth", AlternativeNames(more_hosts)},
                              &authority));
  VPOD_ASSIGN_OR_RETURN(
      const Identity client,
      Issue({"vipu-client", "critical,CA:FALSE", "critical,digitalSignature", "clientAuth", ""},
            &authority));
  VPOD_RETURN_IF_ERROR(WriteIdentity(directory, "server", authority, server));
  return WriteIdentity(directory, "client", authority, client);
}

}  // namespace vpod::security
