#include "server/controller/store/salvage.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "server/controller/store/image.h"

namespace vpod::controller {
namespace {

using Pages = std::map<uint32_t, absl::string_view>;  // contents by page number, from 1

Pages PagesOf(const std::vector<WalFrame>& frames, uint32_t last) {
  Pages pages;
  for (const WalFrame& frame : frames) {
    if (frame.number <= last) pages[frame.page] = frame.content;
  }
  return pages;
}

// The database with pages of the log in the place of its own, and of the size that the last commit
// says.
std::string With(absl::string_view database, const Pages& pages,
                 const std::vector<WalFrame>& frames, uint32_t last_commit) {
  std::string image(database);
  for (const auto& [page, content] : pages) {
    const size_t at = (size_t{page} - 1) * content.size();
    if (image.size() < at + content.size()) image.resize(at + content.size());
    image.replace(at, content.size(), content.data(), content.size());
  }
  for (const WalFrame& frame : frames) {
    if (frame.number == last_commit) image.resize(size_t{frame.commit} * frame.content.size());
  }
  return image;
}

// Whether a checkpoint has brought pages into the database that lie behind the damage: the prefix
// of the log would be laid over newer pages.
bool IsAhead(absl::string_view database, const Pages& before, const std::vector<WalFrame>& frames,
             uint32_t certain) {
  for (const WalFrame& frame : frames) {
    const auto old = before.find(frame.page);
    if (frame.number <= certain || (old != before.end() && old->second == frame.content)) continue;
    const size_t at = (size_t{frame.page} - 1) * frame.content.size();
    if (at < database.size() && database.substr(at, frame.content.size()) == frame.content)
      return true;
  }
  return false;
}

constexpr char kNotKnown[] =
    "Uncertain: every change after the last one that is intact; which they were is not known\n";

// Lists the objects in which the images differ.
std::string Difference(Image& certain, Image& later) {
  std::string text;
  const auto before = certain.Objects(), after = later.Objects();
  if (!before.ok() || !after.ok()) return kNotKnown;
  for (const auto& [name, data] : *after) {
    const auto it = before->find(name);
    if (it == before->end()) {
      absl::StrAppend(&text, "Uncertain: ", name, " was created behind the damage\n");
    } else if (it->second != data) {
      absl::StrAppend(&text, "Uncertain: ", name, " was changed behind the damage\n");
    }
  }
  for (const auto& [name, data] : *before) {
    if (!after->contains(name))
      absl::StrAppend(&text, "Uncertain: ", name, " was removed behind the damage\n");
  }
  // A start of the controller changes the store but no object.
  if (text.empty())
    return "Uncertain: every change behind the damage; those that are intact change no object\n";
  return text;
}

}  // namespace

absl::StatusOr<Salvaged> Salvage(absl::string_view database, absl::string_view log,
                                 const std::optional<WalPosition>& acknowledged) {
  const WalReport report = JudgeWal(database, log, acknowledged);
  const std::vector<WalFrame> frames = IntactFrames(database, log);
  const uint32_t certain = report.last_commit.frame;
  uint32_t last = certain;  // of the commits that are proven
  if (report.later_commit > last) last = report.later_commit;
  const Pages before = PagesOf(frames, certain), after = PagesOf(frames, last);
  const bool ahead = IsAhead(database, before, frames, certain);
  std::string bytes = ahead ? std::string(database) : With(database, before, frames, certain);
  auto image = Image::Of(bytes);
  const absl::Status usable = image.ok() ? image->Meta("format").status() : image.status();
  if (!usable.ok()) {
    return absl::DataLossError(
        absl::StrCat("it cannot be salvaged (", usable.message(), "); restore a backup"));
  }
  Salvaged salvaged;
  VPOD_ASSIGN_OR_RETURN(salvaged.database, image->Bytes());
  if (report.end != WalEnd::kDamaged) return salvaged;
  salvaged.uncertain = absl::StrCat("Damage: ", report.why, "\n");
  auto later = Image::Of(With(database, after, frames, last));
  // A database that is ahead may have changes that no proven commit of the log has.
  const bool comparable = !ahead && last > certain && later.ok();
  salvaged.uncertain += comparable ? Difference(*image, *later) : kNotKnown;
  return salvaged;
}

}  // namespace vpod::controller
