#include "device/base/text.h"

#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"

namespace vpod::base {
namespace {

// Whether protobuf itself takes the text for a `string`.
bool ProtobufTakes(const std::string& text) {
  google::protobuf::BytesValue bytes;  // the same wire format, unchecked
  bytes.set_value(text);
  google::protobuf::StringValue parsed;
  return parsed.ParseFromString(bytes.SerializeAsString());
}

TEST(Utf8Test, IsWhatProtobufTakes) {
  for (const std::string text : {"", "plain", "ö", "日本", "😀", "\x7f", "\xc2\x80", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_TRUE(ProtobufTakes(text)) << text;
  }
  // Lone bytes, overlong forms, surrogates, beyond U+10FFFF, cut off.
  for (const std::string text :
       {"\x80", "\xff", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xed\xbf\xbf",
        "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "a\xe2\x82"}) {
    EXPECT_FALSE(IsUtf8(text)) << testing::PrintToString(text);
    EXPECT_FALSE(ProtobufTakes(text)) << testing::PrintToString(text);
  }
  std::mt19937 random(20240607);
  for (int i = 0; i < 20000; ++i) {
    std::string text(1 + random() % 6, '\0');
    for (char& c : text)
      c = static_cast<char>(random() % 3 == 0 ? random() : 0x80 + random() % 0x80);
    EXPECT_EQ(IsUtf8(text), ProtobufTakes(text)) << testing::PrintToString(text);
  }
}

TEST(HeaderWordTest, IsGraphicAscii) {
  for (const char* word : {"alice", "DOMAIN\\alice", "alice@example.org", "0", "a.b-c_d"})
    EXPECT_TRUE(IsHeaderWord(word)) << word;
  for (const std::string& word :
       {std::string(), std::string("ö"), std::string("a b"), std::string("a|b"),
        std::string("a\nb"), std::string("a\x1b"), std::string("\x7f"), std::string("a\0b", 3),
        std::string(129, 'a')})
    EXPECT_FALSE(IsHeaderWord(word)) << testing::PrintToString(word);
  EXPECT_EQ(CheckHeaderWord("user id", "ö").message(),
            "user id '\\xc3\\xb6' must have 1 to 128 printable ASCII characters without blanks and "
            "bars");
}

TEST(OneLineTest, KeepsTheEndsOfAMessage) {
  EXPECT_EQ(OneLine("--pod 3: the size"), "--pod 3: the size");
  EXPECT_EQ(OneLine("no 'a\nb\x1b[31m\xff'"), "no 'a\uFFFDb\uFFFD[31m\uFFFD'");
  EXPECT_EQ(OneLine(std::string(2000, 'x')), std::string(2000, 'x'));
  const std::string cut = OneLine("--pod " + std::string(100000, 'x') + " is not 4 to 65536");
  EXPECT_EQ(cut.substr(0, 8), "--pod xx");
  EXPECT_EQ(cut.substr(cut.size() - 20), "xx is not 4 to 65536");
  EXPECT_LT(cut.size(), 2100u);
  std::string umlauts = "x";
  for (int i = 0; i < 3001; ++i) umlauts += "ö";
  EXPECT_EQ(OneLine(umlauts).find("\uFFFD"), std::string::npos) << "none was cut";
  EXPECT_EQ(OneLine(umlauts.substr(1)).find("\uFFFD"), std::string::npos);
}

TEST(PrintableTest, ShowsOneLineWithoutControls) {
  EXPECT_EQ(Printable("fashion_mnist"), "fashion_mnist");
  EXPECT_EQ(Printable("jörg 日本 😀"), "jörg 日本 😀");
  EXPECT_EQ(Printable("a\x1b[2Jb\nc\rd\te"), "a\uFFFD[2Jb\uFFFDc\uFFFDd\uFFFDe");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),  // the C1 control sequence introducer
            "\uFFFD31m");
  EXPECT_EQ(Printable("a\xff"), "a\uFFFD");
  EXPECT_EQ(Printable("user\u202Egpj.exe"), "user\uFFFDgpj.exe");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\uFFFDb");
}

TEST(PrintableTest, CutsInWholeCharacters) {
  EXPECT_EQ(Printable("abcdef", 3), "abc…");
  EXPECT_EQ(Printable("abc", 3), "abc");
  EXPECT_EQ(Printable("ööö", 3), "ö…");
  EXPECT_LE(Printable(std::string(1 << 20, '\x1b')).size(), 256u + 3);
}

TEST(PrintableTest, WhateverComesIsUtf8AndComesBackTheSame) {
  std::mt19937 random(20240607);
  for (int i = 0; i < 5000; ++i) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::string shown = Printable(text);
    EXPECT_TRUE(IsUtf8(shown));
    EXPECT_EQ(Printable(shown, 1024), shown);
  }
}

TEST(QuotedFieldTest, NoTextEndsTheField) {
  EXPECT_EQ(QuotedField("alice"), "\"alice\"");
  EXPECT_EQ(QuotedField("a\" user=\"root\n"), "\"a' user='root\uFFFD\"");
  EXPECT_EQ(QuotedField("abcdef", 3), "\"abc…\"");
}

// A shell reads the word back.
TEST(ShellQuotedTest, IsReadBackByAShell) {
  for (const std::string word : {"", "plain", "it's", "$(touch x)", "a b\n`c`\\\"'", "ö"}) {
    FILE* shell = popen(absl::StrCat("printf %s ", ShellQuoted(word)).c_str(), "r");
    ASSERT_NE(shell, nullptr);
    std::array<char, 256> buffer{};
    const size_t size = fread(buffer.data(), 1, buffer.size(), shell);
    pclose(shell);
    EXPECT_EQ(std::string(buffer.data(), size), word);
  }
}

}  // namespace
}  // namespace vpod::base
