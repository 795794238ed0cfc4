#include "device/base/message_text.h"

#include <vector>

#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::base {

absl::Status CheckUtf8(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        VPOD_RETURN_IF_ERROR(CheckUtf8(field->is_repeated()
                                           ? reflection.GetRepeatedMessage(message, field, i)
                                           : reflection.GetMessage(message, field)));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        VPOD_RETURN_IF_ERROR(CheckUtf8(
            field->name(), field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                : reflection.GetString(message, field)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace vpod::base
