#include "device/base/grpc_status.h"

#include <gtest/gtest.h>

namespace vpod::base {
namespace {

TEST(GrpcStatusTest, ComesBackAsItWas) {
  const absl::Status status = absl::NotFoundError("Partition p1 does not exist.");
  EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
}

TEST(GrpcStatusTest, AMessageThatDoesNotFitIsCutBetweenCharacters) {
  const std::string fits(kMaxStatusBytes, 'l');
  EXPECT_EQ(ToGrpc(absl::UnknownError(fits)).error_message(), fits);
  EXPECT_EQ(ToGrpc(absl::UnknownError(fits + "l")).error_message(), fits + "… (2049 bytes)");
  const std::string most(kMaxStatusBytes - 1, 'l');
  EXPECT_EQ(ToGrpc(absl::UnknownError(most + "éé")).error_message(), most + "… (2051 bytes)");
}

}  // namespace
}  // namespace vpod::base
