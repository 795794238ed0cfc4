#include "server/controller/store/wal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "device/base/file.h"
#include "device/base/status.h"

namespace vpod::controller {
namespace {

constexpr size_t kHeaderBytes = 32, kFrameHeaderBytes = 24;
constexpr uint32_t kMagic = 0x377f0682;  // the last bit: checksums take words as big-endian
constexpr size_t kSector = 512;          // a disk writes at least so much wholly or not at all

uint32_t Word(const char* at, bool big_endian = true) {
  const auto* p = reinterpret_cast<const unsigned char*>(at);
  return big_endian ? uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3]
                    : uint32_t{p[3]} << 24 | uint32_t{p[2]} << 16 | uint32_t{p[1]} << 8 | p[0];
}

using Pair = std::pair<uint32_t, uint32_t>;  // salts, or a checksum
Pair PairAt(const char* at) { return {Word(at), Word(at + 4)}; }

Pair Continue(Pair sum, absl::string_view data, bool big_endian) {
  for (size_t i = 0; i + 8 <= data.size(); i += 8) {
    sum.first += Word(data.data() + i, big_endian) + sum.second;
    sum.second += Word(data.data() + i + 4, big_endian) + sum.first;
  }
  return sum;
}

struct Header {
  explicit Header(absl::string_view log) {
    if (log.size() < kHeaderBytes) return;
    big_endian = (Word(log.data()) & 1) != 0;
    page_size = Word(log.data() + 8);
    salts = PairAt(log.data() + 16);
    sum = PairAt(log.data() + 24);
    intact = (Word(log.data()) & ~1u) == kMagic && page_size >= 512 && page_size <= 65536 &&
             Continue({}, log.substr(0, kHeaderBytes - 8), big_endian) == sum;
  }
  bool intact = false, big_endian = false;
  uint32_t page_size = 0;
  Pair salts, sum;
};

struct Frame {
  absl::string_view bytes;
  uint32_t page() const { return Word(bytes.data()); }
  uint32_t commit() const { return Word(bytes.data() + 4); }  // pages of the database; 0: none
  Pair salts() const { return PairAt(bytes.data() + 8); }
  Pair stored() const { return PairAt(bytes.data() + 16); }
  absl::string_view content() const { return bytes.substr(kFrameHeaderBytes); }
  Pair SumAfter(Pair before, bool big_endian) const {
    return Continue(Continue(before, bytes.substr(0, 8), big_endian), content(), big_endian);
  }
};

// The bytes of a file; none of one that is not there.
absl::StatusOr<std::string> Read(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 && errno == ENOENT) return std::string();
  std::string bytes = base::ReadFile(path);
  if (bytes.size() == static_cast<uint64_t>(info.st_size)) return bytes;
  return absl::UnavailableError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
}

class Inspector {
 public:
  Inspector(absl::string_view database, absl::string_view log,
            const std::optional<WalPosition>& acknowledged)
      : database_(database), log_(log), acknowledged_(acknowledged), header_(log) {}

  WalReport Inspect() {
    if (log_.empty()) {
      if (acknowledged_.has_value()) Damaged("its -wal file is missing or empty");
      return report_;
    }
    if (header_.intact) {
      CountFrames();
      Scan();
    } else {
      JudgeWithoutHeader();
    }
    // SQLite deletes the log of an empty database.
    if (report_.end != WalEnd::kDamaged && report_.transactions > 0 && database_.empty())
      Damaged(absl::StrCat("it is empty, its -wal file has ", report_.transactions, " changes"));
    if (report_.end != WalEnd::kDamaged && acknowledged_.has_value()) CheckAcknowledged();
    return report_;
  }

  // After Inspect.
  std::vector<WalFrame> IntactFrames() const {
    std::vector<WalFrame> frames;
    for (uint32_t number = 1; number <= report_.frames; ++number) {
      const Frame frame = At(number);
      if (frame.page() == 0 || (number > report_.intact && !FollowsThatBefore(number))) continue;
      // Older ones follow each other, too. Salts alone may be damaged.
      const bool is_present = frame.salts() == header_.salts ||
                              (number < report_.frames && At(number + 1).salts() == header_.salts);
      if (is_present) frames.push_back({number, frame.page(), frame.commit(), frame.content()});
    }
    return frames;
  }

 private:
  // Whether the frame continues the one before it, of which either the page or the checksum may be
  // damaged.
  bool FollowsThatBefore(uint32_t number) const {
    const Frame frame = At(number);
    const auto follows = [&](Pair sum) {
      return frame.SumAfter(sum, header_.big_endian) == frame.stored();
    };
    if (number == 1) return follows(header_.sum);
    const Pair first = number == 2 ? header_.sum : At(number - 2).stored();
    return follows(At(number - 1).stored()) ||
           follows(At(number - 1).SumAfter(first, header_.big_endian));
  }

  void Damaged(std::string why) {
    report_.end = WalEnd::kDamaged;
    report_.why = std::move(why);
  }

  void CountFrames() {
    report_.page_size = header_.page_size;
    report_.frames = static_cast<uint32_t>((log_.size() - kHeaderBytes) /
                                           (kFrameHeaderBytes + header_.page_size));
  }

  Frame At(uint32_t number) const {
    const size_t bytes = kFrameHeaderBytes + header_.page_size;
    return {log_.substr(kHeaderBytes + (number - 1) * bytes, bytes)};
  }

  void TakeIntact(uint32_t number, const Frame& frame) {
    report_.intact = number;
    const WalPosition here = {header_.salts.first, header_.salts.second, number,
                              frame.stored().first, frame.stored().second};
    if (acknowledged_ == here) has_acknowledged_ = true;
    if (frame.commit() == 0) return;
    report_.last_commit = here;
    report_.database_pages = frame.commit();
    ++report_.transactions;
  }

  // Frame after frame: first those that are intact, then what lies beyond. `trusted`: so many at
  // the beginning, whose checksums are taken for right.
  void Scan(uint32_t trusted = 0) {
    uint32_t number = 1;
    for (Pair sum = header_.sum; number <= report_.frames; ++number) {
      const Frame frame = At(number);
      const bool fits =
          number <= trusted || frame.SumAfter(sum, header_.big_endian) == frame.stored();
      if (frame.page() == 0 || frame.salts() != header_.salts || !fits) break;
      sum = frame.stored();
      TakeIntact(number, frame);
    }
    uint32_t last = report_.intact;  // frame of this log, intact or not
    bool is_newer = false;
    for (uint32_t later = number; later <= report_.frames; ++later) {
      const Pair salts = At(later).salts();
      is_newer = is_newer || salts.first == header_.salts.first + 1;
      if (salts != header_.salts) continue;
      last = later;
      if (later > number && FollowsCommit(later)) report_.later_commit = later - 1;
    }
    report_.torn_frames = last - report_.last_commit.frame;
    report_.end = report_.torn_frames == 0 ? WalEnd::kClean : WalEnd::kTornTransaction;
    if (is_newer) {
      Damaged("the header of its -wal file is older than what follows");
    } else if (report_.later_commit != 0) {
      Damaged(absl::StrCat("frame ", number, " of its -wal file is damaged; changes up to frame ",
                           report_.later_commit, " had been acknowledged"));
    }
  }

  // Whether the frame was written behind the one before it, and that is a commit.
  bool FollowsCommit(uint32_t number) const {
    const Frame frame = At(number), before = At(number - 1);
    if (before.commit() == 0) return false;
    const Pair first = number == 2 ? header_.sum : At(number - 2).stored();
    const Pair whole = before.SumAfter(first, header_.big_endian);
    if (frame.SumAfter(whole, header_.big_endian) == frame.stored()) return true;
    // The page before is damaged. Its header counts if it cannot be of two ages.
    const size_t in_sector = (before.bytes.data() - log_.data()) % kSector;
    return in_sector <= kSector - kFrameHeaderBytes &&
           frame.SumAfter(before.stored(), header_.big_endian) == frame.stored();
  }

  // The frames tell which log it was, and the database whether that is needed.
  void JudgeWithoutHeader() {
    const bool is_new = log_.size() <= kHeaderBytes;
    if (database_.size() >= 18 && !is_new) {
      const uint32_t size = Word(database_.data() + 14) & 0xffff;  // its bytes 16 and 17
      header_.page_size = size == 1 ? 65536 : size;
      header_.big_endian = false;  // as SQLite writes it on x86
      CountFrames();
    }
    if (report_.frames > 0) {
      header_.salts = At(1).salts();
      Scan(/*trusted=*/1);
    }
    if (is_new || (report_.end != WalEnd::kDamaged && IsInDatabase())) {
      report_.end = WalEnd::kTornHeader;
    } else {
      Damaged("the header of its -wal file is damaged");
    }
  }

  // Whether the database has every page as the last intact commit left it. The first frame counts
  // if the second continues it.
  bool IsInDatabase() const {
    if (report_.intact < 2) return false;
    std::map<uint32_t, absl::string_view> pages;
    for (uint32_t number = 1; number <= report_.last_commit.frame; ++number)
      pages[At(number).page()] = At(number).content();
    for (const auto& [page, content] : pages) {
      const uint64_t offset = (uint64_t{page} - 1) * header_.page_size;
      if (offset >= database_.size() || database_.substr(offset, content.size()) != content)
        return false;
    }
    return !pages.empty();
  }

  void CheckAcknowledged() {
    const Pair salts = {acknowledged_->salt1, acknowledged_->salt2};
    // A log that was begun again had been brought into the database.
    if (has_acknowledged_ || (header_.intact && header_.salts.first == salts.first + 1)) return;
    Damaged(salts == header_.salts
                ? absl::StrCat("its -wal file ends at frame ", report_.last_commit.frame,
                               ", and frame ", acknowledged_->frame, " had been acknowledged")
                : "its -wal file is of another time");
  }

  const absl::string_view database_, log_;
  const std::optional<WalPosition> acknowledged_;
  bool has_acknowledged_ = false;
  Header header_;
  WalReport report_;
};

}  // namespace

WalReport JudgeWal(absl::string_view database, absl::string_view log,
                   const std::optional<WalPosition>& acknowledged) {
  return Inspector(database, log, acknowledged).Inspect();
}

std::vector<WalFrame> IntactFrames(absl::string_view database, absl::string_view log) {
  Inspector inspector(database, log, std::nullopt);
  inspector.Inspect();
  return inspector.IntactFrames();
}

absl::StatusOr<WalReport> InspectWal(const std::string& database,
                                     const std::optional<WalPosition>& acknowledged) {
  VPOD_ASSIGN_OR_RETURN(const std::string log, Read(database + "-wal"));
  VPOD_ASSIGN_OR_RETURN(const std::string pages, Read(database));
  return JudgeWal(pages, log, acknowledged);
}

absl::StatusOr<WalPosition> ReadWalPosition(int fd, uint32_t page_size, uint32_t frame) {
  char bytes[kFrameHeaderBytes];
  const uint64_t offset = kHeaderBytes + uint64_t{frame - 1} * (kFrameHeaderBytes + page_size);
  if (pread(fd, bytes, sizeof bytes, static_cast<off_t>(offset)) != sizeof bytes)
    return absl::UnavailableError(absl::StrCat("frame ", frame, " of the log cannot be read"));
  const Pair salts = PairAt(bytes + 8), sum = PairAt(bytes + 16);
  return WalPosition{salts.first, salts.second, frame, sum.first, sum.second};
}

}  // namespace vpod::controller
