#include "device/base/tls.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"
#include "device/base/openssl.h"
#include "device/base/status.h"

namespace vpod::base {
namespace {

OwnedBio Memory(const std::string& text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
OwnedCertificate ParseCertificate(const std::string& pem) {
  return OwnedCertificate(PEM_read_bio_X509(Memory(pem).get(), nullptr, nullptr, nullptr));
}
OwnedKey ParseKey(const std::string& pem) {
  // An encrypted key must not make a daemon ask on its terminal.
  char no_password[] = "";
  return OwnedKey(PEM_read_bio_PrivateKey(Memory(pem).get(), nullptr, nullptr, no_password));
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS needs --tls-ca, --tls-cert and --tls-key; ", flag, " is missing"));
  }
  constexpr size_t kMostBytes = 1 << 20;
  auto text = ReadNamedFile(path, kMostBytes);
  if (!text.ok())
    return absl::FailedPreconditionError(absl::StrCat(text.status().message(), " (", flag, ")"));
  return text;
}

}  // namespace

absl::StatusOr<Tls> ReadTls(const TlsFiles& files) {
  Tls tls{files, "", "", ""};
  VPOD_ASSIGN_OR_RETURN(tls.ca, ReadPem("--tls-ca", files.ca));
  VPOD_ASSIGN_OR_RETURN(tls.certificate, ReadPem("--tls-cert", files.certificate));
  VPOD_ASSIGN_OR_RETURN(tls.key, ReadPem("--tls-key", files.key));
  for (const auto& [path, pem] :
       {std::pair(files.ca, tls.ca), {files.certificate, tls.certificate}}) {
    if (ParseCertificate(pem) == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(path, " is not a certificate in PEM format"));
  }
  const OwnedKey key = ParseKey(tls.key);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.key, " is not an unencrypted private key in PEM format"));
  }
  if (X509_check_private_key(ParseCertificate(tls.certificate).get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.key, " is not the key of certificate ", files.certificate));
  }
  return tls;
}

bool IsServerCertificate(const std::string& pem) {
  const OwnedCertificate certificate = ParseCertificate(pem);
  if (certificate == nullptr) return false;
  const uint32_t uses = X509_get_extended_key_usage(certificate.get());
  return uses != UINT32_MAX && (uses & XKU_SSL_SERVER) != 0;
}

}  // namespace vpod::base
