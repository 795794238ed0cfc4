#include "server/security/certificates.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <iterator>

#include "device/base/file.h"
#include "device/base/openssl.h"
#include "device/base/tls.h"

namespace vpod::security {
namespace {

namespace fs = std::filesystem;

class CertificatesTest : public testing::Test {
 protected:
  CertificatesTest()
      : directory_(testing::TempDir() + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
  }
  ~CertificatesTest() override { fs::remove_all(directory_); }

  std::string Text(const std::string& name) const {
    return base::ReadFile(directory_ + "/" + name);
  }
  bool IsFor(const std::string& host) const {
    const std::string pem = Text("server/server.crt");
    const base::OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
    const base::OwnedCertificate certificate(
        PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    return X509_check_host(certificate.get(), host.data(), host.size(), 0, nullptr) == 1 ||
           X509_check_ip_asc(certificate.get(), host.c_str(), 0) == 1;
  }

  const std::string directory_;
};

TEST_F(CertificatesTest, FilesAreCompleteAndKeysPrivate) {
  ASSERT_TRUE(GenerateCertificates(directory_, {}).ok());
  for (const std::string role : {"server", "client"}) {
    const std::string at = directory_ + "/" + role + "/";
    const auto tls = base::ReadTls({at + "ca.crt", at + role + ".crt", at + role + ".key"});
    ASSERT_TRUE(tls.ok()) << tls.status();
    EXPECT_EQ(base::IsServerCertificate(tls->certificate), role == "server");
    EXPECT_FALSE(base::IsServerCertificate(tls->ca));
    EXPECT_EQ(fs::status(at + role + ".key").permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(std::distance(fs::directory_iterator(at), fs::directory_iterator()), 3);
  }
  EXPECT_EQ(Text("server/ca.crt"), Text("client/ca.crt"));
}

TEST_F(CertificatesTest, ServerIsNamedByHostAndByRole) {
  ASSERT_TRUE(GenerateCertificates(directory_, {"ctrl.site.example", "10.1.3.101"}).ok());
  for (const char* host :
       {"localhost", "127.0.0.1", "::1", base::kAgentName, "ctrl.site.example", "10.1.3.101"}) {
    EXPECT_TRUE(IsFor(host)) << host;
  }
  EXPECT_FALSE(IsFor("10.1.3.102"));
  EXPECT_FALSE(IsFor("other.site.example"));
}

TEST_F(CertificatesTest, NothingIsOverwritten) {
  ASSERT_TRUE(GenerateCertificates(directory_, {}).ok());
  const std::string before = Text("server/server.key");
  const absl::Status again = GenerateCertificates(directory_, {});
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again.message(), "the directory " + directory_ +
                                 "/server holds certificates already; remove them to make new "
                                 "ones");
  EXPECT_EQ(Text("server/server.key"), before);
  fs::remove_all(directory_ + "/server");
  EXPECT_FALSE(GenerateCertificates(directory_, {}).ok());
  EXPECT_FALSE(fs::exists(directory_ + "/server"));
}

TEST_F(CertificatesTest, HostThatIsNoneIsRefused) {
  for (const char* host : {"", "a,DNS:b", "a b", "x\n"}) {
    EXPECT_EQ(GenerateCertificates(directory_, {host}).code(), absl::StatusCode::kInvalidArgument)
        << host;
    EXPECT_EQ(CheckCanGenerate(directory_, {host}).code(), absl::StatusCode::kInvalidArgument)
        << host;
  }
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(CertificatesTest, DirectoryThatCannotBeWrittenIsAnError) {
  const absl::Status status = GenerateCertificates("/proc/vpod-certs", {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace vpod::security
