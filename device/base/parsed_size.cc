#include "device/base/parsed_size.h"

#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"

namespace vpod::base {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Upper bounds of what the allocator and protobuf's containers add.
constexpr uint64_t kAllocation = 16;  // header and rounding
constexpr uint64_t kElement = 3 * 8;  // a pointer in an array that doubles: old and new at once
constexpr uint64_t kString = 32 + kAllocation;
constexpr uint64_t kUnknown = 3 * 16;  // a field in an array that doubles
constexpr uint64_t kUnknownSet = 64 + kAllocation;
constexpr int kDeepest = 100;  // protobuf's own limit

class Meter {
 public:
  Meter(absl::string_view bytes, uint64_t limit) : rest_(bytes), limit_(limit) {}

  // Measures the rest of a message of `type`, or of an unknown group if `type` is null.
  absl::Status Message(const Descriptor* type, int depth) {
    if (depth > kDeepest) return Corrupt();
    bool has_unknown = type == nullptr;
    while (!rest_.empty()) {
      uint64_t tag = 0;
      if (!Varint(tag) || tag > UINT32_MAX || tag >> 3 == 0) return Corrupt();
      const auto wire = static_cast<WireFormatLite::WireType>(tag & 7);
      if (wire == WireFormatLite::WIRETYPE_END_GROUP)
        return type == nullptr ? absl::OkStatus() : Corrupt();
      const FieldDescriptor* field =
          type == nullptr ? nullptr : type->FindFieldByNumber(static_cast<int>(tag >> 3));
      if (field == nullptr && !has_unknown) {
        has_unknown = true;
        total_ += kUnknownSet;
      }
      if (absl::Status status = Field(field, wire, depth); !status.ok()) return status;
      if (total_ > limit_) return TooLarge();
    }
    return type == nullptr ? Corrupt() : absl::OkStatus();
  }

  uint64_t total() const { return total_; }

 private:
  static absl::Status Corrupt() { return absl::InvalidArgumentError("truncated or corrupt"); }
  absl::Status TooLarge() const {
    return absl::ResourceExhaustedError(
        absl::StrCat("it would take more than ", limit_, " bytes of memory"));
  }

  absl::Status Field(const FieldDescriptor* field, WireFormatLite::WireType wire, int depth) {
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t ignored;
        Scalar(field);
        return Varint(ignored) ? absl::OkStatus() : Corrupt();
      }
      case WireFormatLite::WIRETYPE_FIXED64:
        Scalar(field);
        return Skip(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        Scalar(field);
        return Skip(4);
      case WireFormatLite::WIRETYPE_START_GROUP:
        total_ += kUnknown + kUnknownSet;
        return Message(nullptr, depth + 1);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return Delimited(field, depth);
      default:
        return Corrupt();
    }
  }

  void Scalar(const FieldDescriptor* field) {
    total_ += field == nullptr ? kUnknown : field->is_repeated() ? kElement : 0;
  }

  absl::Status Delimited(const FieldDescriptor* field, int depth) {
    uint64_t length = 0;
    if (!Varint(length) || length > rest_.size()) return Corrupt();
    const absl::string_view all = rest_, inner = rest_.substr(0, length);
    absl::Status status;
    if (field == nullptr) {
      total_ += kUnknown + kString + length;
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      total_ += ObjectBytes(*field->message_type()) + kAllocation + kElement;
      if (field->is_map()) total_ += kUnknownSet;  // a node of the table as well
      rest_ = inner;
      if (total_ <= limit_) status = Message(field->message_type(), depth + 1);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      total_ += kString + kElement + length;
    } else {
      total_ += kElement * Elements(*field, inner);
    }
    rest_ = all.substr(length);
    return status;
  }

  // Number of elements of a packed field.
  static uint64_t Elements(const FieldDescriptor& field, absl::string_view packed) {
    switch (WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(field.type()))) {
      case WireFormatLite::WIRETYPE_FIXED64:
        return packed.size() / 8 + 1;
      case WireFormatLite::WIRETYPE_FIXED32:
        return packed.size() / 4 + 1;
      default:
        return static_cast<uint64_t>(
            std::count_if(packed.begin(), packed.end(), [](char byte) { return byte >= 0; }));
    }
  }

  uint64_t ObjectBytes(const Descriptor& type) {
    uint64_t& bytes = object_bytes_[&type];
    if (bytes == 0) {
      const auto* prototype =
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
      bytes = prototype->GetReflection()->SpaceUsedLong(*prototype);
    }
    return bytes;
  }

  bool Varint(uint64_t& value) {
    value = 0;
    for (size_t i = 0; i < rest_.size() && i < 10; ++i) {
      value |= uint64_t{static_cast<uint8_t>(rest_[i]) & 0x7fu} << (7 * i);
      if (rest_[i] >= 0) {
        rest_.remove_prefix(i + 1);
        return true;
      }
    }
    return false;
  }
  absl::Status Skip(size_t bytes) {
    if (bytes > rest_.size()) return Corrupt();
    rest_.remove_prefix(bytes);
    return absl::OkStatus();
  }

  absl::string_view rest_;
  const uint64_t limit_;
  uint64_t total_ = 0;
  std::unordered_map<const Descriptor*, uint64_t> object_bytes_;
};

}  // namespace

absl::StatusOr<uint64_t> ParsedSize(const Descriptor& type, absl::string_view bytes,
                                    uint64_t limit) {
  Meter meter(bytes, limit);
  if (absl::Status status = meter.Message(&type, 0); !status.ok()) return status;
  if (meter.total() > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it would take more than ", limit, " bytes of memory"));
  }
  return meter.total();
}

}  // namespace vpod::base
