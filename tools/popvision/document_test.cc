#include "tools/popvision/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "device/base/text.h"

namespace vpod::popvision {
namespace {

using testing::HasSubstr;
using testing::Not;

Document Example() {
  Lanes lanes{.title = "Lanes", .unit = "cycles", .kinds = {{'F', "forward"}, {'.', "waiting"}}};
  lanes.lanes = {{"IPU 0", {{0, 50, 0}, {50, 100, 1}}}, {"IPU 1", {{75, 100, 0}}}};
  lanes.end = 100;
  Document document{.name = "example"};
  document.blocks.emplace_back(Facts{
      "Facts", {{"count", uint64_t{1234567}}, {"share", 62.54}, {"name", std::string("a<b")}}});
  document.blocks.emplace_back(
      Table{"Table",
            {"Name", "Bytes"},
            {{std::string("w"), uint64_t{7}}, {std::string("x & y"), uint64_t{12000}}}});
  document.blocks.emplace_back(Chart{.title = "Chart",
                                     .unit = "bytes",
                                     .axis = "tile",
                                     .series = {{"a", {0, 4, 8}}, {"b", {0, 0, 8}}},
                                     .limit = 12});
  document.blocks.emplace_back(lanes);
  document.blocks.emplace_back(Notes{"Notes", {"one"}});
  return document;
}

TEST(DocumentTest, Text) {
  EXPECT_EQ(Text(Example()),
            "Facts\n"
            "  count  1,234,567\n"
            "  share  62.5\n"
            "  name   a<b\n"
            "\n"
            "Table\n"
            " Name  | Bytes\n"
            "----------------\n"
            " w     |      7\n"
            " x & y | 12,000\n"
            "----------------\n"
            "\n"
            "Chart\n"
            "  16 |  #\n"
            "     |  #\n"
            "     |--#\n"
            "     |  #\n"
            "     |  #\n"
            "     |  #\n"
            "     | ##\n"
            "   0 | ##\n"
            "     +---\n"
            "      bytes by tile, 0 to 2; limit 12\n"
            "\n"
            "Lanes\n"
            "  IPU 0 |" +
                std::string(48, 'F') + std::string(48, '.') +
                "|\n"
                "  IPU 1 |" +
                std::string(72, ' ') + std::string(24, 'F') +
                "|\n"
                "         0 to 100 cycles: F forward . waiting\n"
                "\n"
                "Notes\n"
                "  - one\n");
}

TEST(DocumentTest, Values) {
  EXPECT_EQ(Show({}), "-");
  EXPECT_EQ(Show(std::string("text")), "text");
  EXPECT_EQ(Show(uint64_t{1234567}), "1,234,567");
  EXPECT_EQ(Show(int64_t{1234}), "+1,234");
  EXPECT_EQ(Show(int64_t{-1234}), "-1,234");
  EXPECT_EQ(Show(int64_t{0}), "+0");
  EXPECT_EQ(Show(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(Show(62.54), "62.5");
}

TEST(DocumentTest, JsonHasAllNumbers) {
  const auto json = nlohmann::json::parse(Json(Example()));
  EXPECT_EQ(json["view"], "example");
  const auto& blocks = json["blocks"];
  ASSERT_EQ(blocks.size(), 5u);
  EXPECT_EQ(blocks[0]["facts"]["count"], 1234567);
  EXPECT_EQ(blocks[1]["rows"][1]["Bytes"], 12000);
  EXPECT_EQ(blocks[2]["series"]["b"], (std::vector<int>{0, 0, 8}));
  EXPECT_EQ(blocks[3]["lanes"]["IPU 0"][1]["kind"], "waiting");
  EXPECT_EQ(blocks[4]["notes"][0], "one");
}

TEST(DocumentTest, HtmlNeedsNothingElseAndEscapes) {
  const std::string html = Html({.title = "a <title>", .heading = "<b>"}, {Example()});
  EXPECT_THAT(html, HasSubstr("<title>a &lt;title&gt;</title>"));
  EXPECT_THAT(html, HasSubstr("<h1>&lt;b&gt;</h1>"));
  EXPECT_THAT(html, HasSubstr("a&lt;b"));
  EXPECT_THAT(html, HasSubstr("x &amp; y"));
  EXPECT_THAT(html, HasSubstr("<svg"));
  for (const char* outside : {"http:", "https:", "src=", "<script", "@import"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

// The position of a text on a page.
size_t At(const std::string& html, const std::string& text) {
  const size_t at = html.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  return at;
}

TEST(DocumentTest, WhatIsWrongComesFirstAndInRed) {
  const std::string html =
      Html({.title = "t", .problems = {"IPU 0 is out of memory", "a < b"}}, {Example()});
  EXPECT_LT(At(html, "<li>IPU 0 is out of memory</li>"), At(html, "<section>"));
  EXPECT_LT(At(html, "<a class=wrong href=\"#wrong\">"), At(html, "<a href=\"#"));
  EXPECT_THAT(html, HasSubstr("<li>a &lt; b</li>"));
  EXPECT_THAT(html, testing::ContainsRegex("\\.problems [{][^}]*color: #b00020"));
  EXPECT_THAT(Html({.title = "t"}, {Example()}), Not(HasSubstr("id=wrong")));
}

// Links without white space between them would be one word, which does not wrap.
TEST(DocumentTest, NavigationWraps) {
  const std::string html = Html({.title = "t"}, {Example(), Example()});
  EXPECT_THAT(html, testing::ContainsRegex("nav [{][^}]*flex-wrap: wrap"));
  EXPECT_THAT(html, HasSubstr("</a>\n<a href="));
}

// The highest point of the shapes of a chart; it begins at 10 pixels.
double TopOf(const std::string& html) {
  const size_t at = At(html, "points=\"");
  double x = 0, y = 0;
  EXPECT_EQ(std::sscanf(html.c_str() + at, "points=\"%lf,%lf", &x, &y), 2);
  return y;
}

TEST(DocumentTest, ChartsScaleToTheirValues) {
  const auto shown = [](uint64_t value, std::optional<uint64_t> limit) {
    Document document{.name = "memory"};
    document.blocks.emplace_back(Chart{.title = "Bytes by tile",
                                       .unit = "bytes",
                                       .axis = "tile",
                                       .series = {{"a", {value}}},
                                       .limit = limit});
    return Html({.title = "t"}, {document});
  };
  for (const std::string& html : {shown(300, 638976), shown(300, std::nullopt), shown(300, 300)})
    EXPECT_EQ(TopOf(html), 10);
  EXPECT_THAT(shown(300, 638976), HasSubstr("the limit of 638,976 bytes lies above the chart"));
  EXPECT_THAT(shown(300, 638976), Not(HasSubstr("<line ")));
  EXPECT_EQ(TopOf(shown(300, 600)), 10 + 220 / 2);
  EXPECT_THAT(shown(300, 600), HasSubstr("the limit of 600 bytes is the dashed line"));
  EXPECT_THAT(shown(900, 600), HasSubstr("<line "));
  EXPECT_EQ(TopOf(shown(900, 600)), 10);
}

// Names come from a file: a terminal must not act on them, however they are shown.
TEST(DocumentTest, ControlCharactersAreNotPrinted) {
  // A title, a colour, C1's control sequence, a line of its own, right-to-left, not UTF-8.
  const std::string hostile =
      "\x1b]0;title\x07\x1b[31m \xc2\x9b"
      "31m\n- line\r\x7f \xe2\x80\xae \xff";
  Document document{.name = "hostile"};
  document.blocks.emplace_back(Facts{hostile, {{hostile, hostile}}});
  document.blocks.emplace_back(Table{hostile, {hostile}, {{hostile}}});
  document.blocks.emplace_back(
      Chart{.title = hostile, .unit = "bytes", .axis = "tile", .series = {{hostile, {1}}}});
  document.blocks.emplace_back(
      Lanes{.title = hostile, .unit = "cycles", .kinds = {{'F', "forward"}}});
  document.blocks.emplace_back(Notes{hostile, {hostile}});
  const std::string text = Text(document),
                    html = Html({hostile, hostile, hostile, {hostile}}, {document}),
                    json = Json(document);
  for (const std::string& shown : {text, html, json}) {
    for (absl::string_view line : absl::StrSplit(shown, '\n'))
      EXPECT_TRUE(base::IsTextLine(line)) << absl::CHexEscape(line);
  }
  EXPECT_THAT(text, HasSubstr("- line"));
  EXPECT_THAT(text, Not(HasSubstr("\n- line")));
  EXPECT_EQ(nlohmann::json::parse(json)["blocks"][4]["notes"][0],
            hostile.substr(0, hostile.size() - 1) + "\xef\xbf\xbd");
  EXPECT_TRUE(std::all_of(json.begin(), json.end(), [](char c) { return c > 0 && c < 0x7f; }));
}

// Never more than a few of many segments are held as text.
TEST(DocumentTest, JsonIsWrittenPieceByPiece) {
  class Pieces : public std::streambuf {
   public:
    std::streamsize largest = 0, all = 0;

   protected:
    std::streamsize xsputn(const char*, std::streamsize size) override {
      largest = std::max(largest, size);
      all += size;
      return size;
    }
    int overflow(int c) override { return ++all, c; }
  };
  Document document = Example();
  auto& segments = std::get<Lanes>(document.blocks[3]).lanes[0].segments;
  segments.resize(100000, {0, 50, 0});
  Pieces pieces;
  std::ostream out(&pieces);
  WriteJson(document, out);
  EXPECT_EQ(pieces.all, static_cast<std::streamsize>(Json(document).size()));
  EXPECT_LT(pieces.largest, 1000);
}

TEST(DocumentTest, EmptyOnesAreShown) {
  Document document{.name = "empty"};
  document.blocks.emplace_back(Facts{"f", {}});
  document.blocks.emplace_back(Table{"t", {"a"}, {}});
  document.blocks.emplace_back(Chart{.title = "c"});
  document.blocks.emplace_back(Lanes{.title = "l"});
  document.blocks.emplace_back(Notes{"n", {}});
  EXPECT_THAT(Text(document), HasSubstr("l\n"));
  EXPECT_THAT(Html({.title = "t"}, {document}), HasSubstr("</html>"));
  EXPECT_EQ(nlohmann::json::parse(Json(document))["blocks"].size(), 5u);
}

}  // namespace
}  // namespace vpod::popvision
