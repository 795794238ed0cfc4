#include "device/base/message_text.h"

#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

namespace vpod::base {
namespace {

TEST(MessageTextTest, TextAtAnyDepthIsChecked) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("ö");
  file.add_dependency("a.proto");
  file.add_message_type()->add_field()->set_name("b");
  EXPECT_TRUE(CheckUtf8(file).ok());
  file.mutable_message_type(0)->mutable_field(0)->set_default_value("\xff");
  EXPECT_EQ(CheckUtf8(file).message(), "default_value '\\xff' is not UTF-8 text");
  file.clear_message_type();
  file.add_dependency("\xc0\x80");
  EXPECT_EQ(CheckUtf8(file).message(), "dependency '\\xc0\\x80' is not UTF-8 text");
}

TEST(MessageTextTest, BytesMayBeAnything) {
  google::protobuf::UninterpretedOption option;
  option.set_string_value("\xff");
  EXPECT_TRUE(CheckUtf8(option).ok());
}

}  // namespace
}  // namespace vpod::base
