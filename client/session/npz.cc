#include "client/session/npz.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/unfinished_file.h"
#include "device/program/float_codec.h"

namespace vpod::session {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr size_t kPrefix = 10;  // magic, version and the length of the header
constexpr size_t kAlignment = 64;

// "(2, 3)", "(5,)", "()"
std::string ShapeText(const program::Dims& dims) {
  return absl::StrCat("(", absl::StrJoin(dims, ", "), dims.size() == 1 ? ",)" : ")");
}

// NumPy's names of the element types.
constexpr struct {
  program::v1::DataType type;
  const char* name;
} kTypes[] = {
    {program::v1::FLOAT32, "<f4"}, {program::v1::FLOAT16, "<f2"}, {program::v1::INT32, "<i4"},
    {program::v1::UINT32, "<u4"},  {program::v1::INT16, "<i2"},   {program::v1::UINT16, "<u2"},
    {program::v1::INT8, "|i1"},    {program::v1::UINT8, "|u1"},   {program::v1::BOOL, "|b1"},
};

const char* NumpyName(program::v1::DataType type) {
  for (const auto& each : kTypes) {
    if (each.type == type) return each.name;
  }
  return "";
}

// The bytes of an .npy file before its values.
std::string Header(const program::TensorType& type) {
  std::string text =
      absl::StrCat("{'descr': '", NumpyName(type.type),
                   "', 'fortran_order': False, 'shape': ", ShapeText(type.dims), ", }");
  text.append((kAlignment - (kPrefix + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  return absl::StrCat(
      kMagic, std::string{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)}, text);
}

struct CloseZip {
  void operator()(void* file) const { zipClose(file, nullptr); }
};
struct CloseUnzip {
  void operator()(void* file) const { unzClose(file); }
};

bool WriteArray(zipFile file, const std::string& name, const Array& array) {
  const zip_fileinfo info{};
  // Stored without compression, as numpy.savez does; with 64-bit sizes.
  if (zipOpenNewFileInZip64(file, (name + ".npy").c_str(), &info, nullptr, 0, nullptr, 0, nullptr,
                            /*method=*/0, /*level=*/0, /*zip64=*/1) != ZIP_OK)
    return false;
  const std::string header = Header(array.type);
  bool ok =
      zipWriteInFileInZip(file, header.data(), static_cast<unsigned>(header.size())) == ZIP_OK;
  constexpr size_t kPiece = size_t{1} << 24;
  for (size_t at = 0; ok && at < array.bytes.size(); at += kPiece) {
    const auto length = static_cast<unsigned>(std::min(kPiece, array.bytes.size() - at));
    ok = zipWriteInFileInZip(file, array.bytes.data() + at, length) == ZIP_OK;
  }
  return zipCloseFileInZip(file) == ZIP_OK && ok;
}

bool ReadExactly(unzFile file, void* to, size_t size) {
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const int read =
        unzReadCurrentFile(file, bytes, static_cast<unsigned>(std::min<size_t>(size, 1 << 24)));
    if (read <= 0) return false;
    bytes += read;
    size -= static_cast<size_t>(read);
  }
  return true;
}

// Parses "2, 3", "5," or ""; nullopt if the text is not a shape.
std::optional<program::Dims> ParseShape(absl::string_view text) {
  program::Dims dims;
  std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (absl::StripAsciiWhitespace(parts.back()).empty()) parts.pop_back();
  for (absl::string_view part : parts) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim)) return std::nullopt;
    dims.push_back(dim);
  }
  return dims;
}

// The type in an .npy header as NumPy writes it; nullopt for another element type or order.
std::optional<program::TensorType> ParseHeader(absl::string_view header) {
  for (const auto& known : kTypes) {
    absl::string_view rest = header;
    if (!absl::ConsumePrefix(&rest, absl::StrCat("{'descr': '", known.name, "', ")) ||
        !absl::ConsumePrefix(&rest, "'fortran_order': False, 'shape': ("))
      continue;
    const size_t end = rest.find(')');
    if (end == absl::string_view::npos) return std::nullopt;
    const auto dims = ParseShape(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    absl::ConsumePrefix(&rest, ",");
    if (!dims || absl::StripAsciiWhitespace(rest) != "}") return std::nullopt;
    return program::TensorType{known.type, *dims};
  }
  return std::nullopt;
}

absl::StatusOr<Array> ReadArray(unzFile file, uint64_t size) {
  const auto wrong = [](absl::string_view why) { return absl::InvalidArgumentError(why); };
  char prefix[kPrefix];
  if (size < kPrefix || !ReadExactly(file, prefix, kPrefix) ||
      absl::string_view(prefix, kMagic.size()) != kMagic)
    return wrong("is not an .npy array of version 1.0");
  const size_t length =
      static_cast<uint8_t>(prefix[8]) + size_t{256} * static_cast<uint8_t>(prefix[9]);
  std::string header(length, '\0');
  if (!ReadExactly(file, header.data(), length)) return wrong("ends within its header");
  const auto type = ParseHeader(header);
  if (!type) {
    return wrong(
        "must be float32, float16, bool or integers of at most 32 bits, little-endian and in "
        "row-major order");
  }
  if (!program::Check(*type).ok() || size - kPrefix - length != type->bytes())
    return wrong(absl::StrCat("has a shape ", ShapeText(type->dims), " that its bytes do not fit"));
  Array array{*type, std::string(type->bytes(), '\0')};
  if (!ReadExactly(file, array.bytes.data(), array.bytes.size()))
    return wrong("is truncated or damaged");
  if (type->type == program::v1::BOOL &&
      array.bytes.find_first_not_of(std::string("\0\1", 2)) != std::string::npos)
    return wrong("has a bool that is neither 0 nor 1");
  return array;
}

}  // namespace

Array FloatArray(program::Dims dims, absl::Span<const float> values) {
  return {{program::v1::FLOAT32, std::move(dims)},
          program::EncodeFloats(values, program::v1::FLOAT32)};
}

absl::Status WriteNpz(const std::string& path, const Arrays& arrays) {
  // A device or a named pipe would be replaced, too.
  VPOD_ASSIGN_OR_RETURN(const std::string output, base::OutputPath(path));
  return base::ReplaceWhole(output, [&](const std::string& name) {
    std::unique_ptr<void, CloseZip> file(zipOpen64(name.c_str(), APPEND_STATUS_CREATE));
    if (file == nullptr) return false;
    for (const auto& [array_name, array] : arrays) {
      if (WriteArray(file.get(), array_name, array)) continue;
      const int why = errno;
      file.reset();  // which writes
      errno = why;
      return false;
    }
    // This writes the directory of the archive and what is buffered, which may be the whole file.
    return zipClose(file.release(), nullptr) == ZIP_OK;
  });
}

absl::StatusOr<Arrays> ReadNpz(const std::string& path, uint64_t limit_bytes) {
  if (access(path.c_str(), R_OK) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  VPOD_RETURN_IF_ERROR(base::CheckIsFileOrNothing(path));
  const std::unique_ptr<void, CloseUnzip> file(unzOpen64(path.c_str()));
  if (file == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(path, " is not an .npz file"));
  Arrays arrays;
  uint64_t total = 0;
  for (int found = unzGoToFirstFile(file.get()); found == UNZ_OK;
       found = unzGoToNextFile(file.get())) {
    unz_file_info64 info;
    char name[1024];
    if (unzGetCurrentFileInfo64(file.get(), &info, name, sizeof(name), nullptr, 0, nullptr, 0) !=
            UNZ_OK ||
        info.size_filename >= sizeof(name) || unzOpenCurrentFile(file.get()) != UNZ_OK)
      return absl::InvalidArgumentError(absl::StrCat(path, " is damaged"));
    total += info.uncompressed_size;
    if (total > limit_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has more than ", limit_bytes, " bytes of values"));
    }
    absl::StatusOr<Array> array = ReadArray(file.get(), info.uncompressed_size);
    const bool intact = unzCloseCurrentFile(file.get()) == UNZ_OK;  // compares the checksum
    if (array.ok() && !intact) array = absl::InvalidArgumentError("is truncated or damaged");
    if (!array.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": array '", name, "' ", array.status().message()));
    }
    arrays[std::string(absl::StripSuffix(name, ".npy"))] = *std::move(array);
  }
  return arrays;
}

}  // namespace vpod::session
