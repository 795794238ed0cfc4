#include "device/base/tls.h"

#include <gtest/gtest.h>

#include <fstream>

namespace vpod::base {
namespace {

std::string File(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ReadTlsTest, NamesWhatIsMissingOrUnreadable) {
  const std::string junk = File("junk.pem", "no certificate\n");
  EXPECT_EQ(ReadTls({junk, "", junk}).status().message(),
            "TLS needs --tls-ca, --tls-cert and --tls-key; --tls-cert is missing");
  EXPECT_EQ(ReadTls({"/no/ca.crt", junk, junk}).status().message(),
            "cannot read /no/ca.crt: No such file or directory (--tls-ca)");
  EXPECT_EQ(ReadTls({testing::TempDir(), junk, junk}).status().message(),
            "cannot read " + testing::TempDir() + ": it is a directory (--tls-ca)");
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadTls({"/no/ca.crt", junk, junk}).status()));
  EXPECT_EQ(ReadTls({junk, junk, junk}).status().message(),
            junk + " is not a certificate in PEM format");
}

TEST(IsServerCertificateTest, JunkIsNone) {
  EXPECT_FALSE(IsServerCertificate(""));
  EXPECT_FALSE(IsServerCertificate("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"));
}

}  // namespace
}  // namespace vpod::base
