#include "tests/support/executable_mutations.h"

#include <google/protobuf/message.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace vpod::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
namespace v1 = program::v1;

// A field that a message has, or may have.
struct Spot {
  Message* message;
  const FieldDescriptor* field;
  int index = -1;  // of a repeated one
};

// Fields of a message and of those below. Absent single fields are there too.
void FindSpots(Message& message, std::vector<Spot>& spots) {
  const Reflection& reflection = *message.GetReflection();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* field = message.GetDescriptor()->field(f);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        spots.push_back({&message, field, i});
        if (is_message) FindSpots(*reflection.MutableRepeatedMessage(&message, field, i), spots);
      }
    } else if (!is_message) {
      const bool other_case = field->real_containing_oneof() != nullptr;
      if (!other_case || reflection.HasField(message, field)) spots.push_back({&message, field});
    } else if (reflection.HasField(message, field)) {
      spots.push_back({&message, field});
      FindSpots(*reflection.MutableMessage(&message, field), spots);
    }
  }
}

// The value of a number as all kinds of number can hold it; 0 of others.
double NumberAt(const Spot& spot) {
  const Reflection& reflection = *spot.message->GetReflection();
#define VPOD_GET(type)                                              \
  (spot.index < 0 ? reflection.Get##type(*spot.message, spot.field) \
                  : reflection.GetRepeated##type(*spot.message, spot.field, spot.index))
  switch (spot.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return VPOD_GET(Int32);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(VPOD_GET(Int64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return VPOD_GET(UInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(VPOD_GET(UInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return VPOD_GET(Double);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return static_cast<double>(VPOD_GET(Float));
    case FieldDescriptor::CPPTYPE_ENUM:
      return VPOD_GET(EnumValue);
    default:
      return 0;
  }
#undef VPOD_GET
}

template <class T>
T Cut(double value) {
  if (!(value > static_cast<double>(std::numeric_limits<T>::min())))
    return std::numeric_limits<T>::min();
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

// Near the old value or that of another field more often than at an edge.
double AnyNumber(const Spot& spot, const std::vector<Spot>& spots, Random& random) {
  static const double edges[] = {0,   1,    2,     3,          8,   63,  64, 65, 127,  128, 255,
                                 256, 1023, 65535, 2147483647, 4e9, 1e9, -1, -2, 1e19, 0.5, 1e-30};
  static const double floats[] = {std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  1e38,
                                  -1e38,
                                  -0.0};
  const bool is_float = spot.field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT ||
                        spot.field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  switch (random() % 8) {
    case 0:
      return NumberAt(spot) + 1;
    case 1:
      return NumberAt(spot) - 1;
    case 2:
      return NumberAt(spot) * 2;
    case 3:
      return static_cast<double>(random() % 16);
    case 4:
    case 5:
      return NumberAt(spots[random() % spots.size()]);
    default:
      if (is_float && random() % 2 == 0) return floats[random() % std::size(floats)];
      return edges[random() % std::size(edges)];
  }
}

void SetNumber(const Spot& spot, double value, Random& random) {
  const Reflection& reflection = *spot.message->GetReflection();
#define VPOD_SET(type, number)                                             \
  (spot.index < 0 ? reflection.Set##type(spot.message, spot.field, number) \
                  : reflection.SetRepeated##type(spot.message, spot.field, spot.index, number))
  switch (spot.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return VPOD_SET(Int32, Cut<int32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return VPOD_SET(Int64, Cut<int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return VPOD_SET(UInt32, Cut<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return VPOD_SET(UInt64, Cut<uint64_t>(value));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return VPOD_SET(Double, value);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return VPOD_SET(Float, std::abs(value) > 3e38 ? std::numeric_limits<float>::infinity()
                                                    : static_cast<float>(value));
    case FieldDescriptor::CPPTYPE_ENUM:
      return VPOD_SET(EnumValue, static_cast<int>(random() % 40));
    case FieldDescriptor::CPPTYPE_BOOL:
      return VPOD_SET(Bool, random() % 2 == 0);
    default:
      return;
  }
#undef VPOD_SET
}

// Another message of the same type, from here or from another executable.
void ReplaceMessage(const Spot& spot, const std::vector<Spot>& donors, Random& random) {
  const auto at = [](const Spot& place) {
    const Reflection& reflection = *place.message->GetReflection();
    return place.index < 0
               ? reflection.MutableMessage(place.message, place.field)
               : reflection.MutableRepeatedMessage(place.message, place.field, place.index);
  };
  for (int tries = 0; tries < 20; ++tries) {
    const Spot& donor = donors[random() % donors.size()];
    if (donor.field->message_type() != spot.field->message_type()) continue;
    const std::unique_ptr<Message> copy(at(donor)->New());
    copy->CopyFrom(*at(donor));  // it may lie inside the other
    auto* instruction = dynamic_cast<v1::Instruction*>(copy.get());
    if (instruction != nullptr && random() % 2 == 0) {
      // Another op on the same operands.
      const auto& old = dynamic_cast<const v1::Instruction&>(*at(spot));
      *instruction->mutable_inputs() = old.inputs();
      *instruction->mutable_outputs() = old.outputs();
    }
    at(spot)->CopyFrom(*copy);
    return;
  }
}

// One more element of a repeated field, one less, or two in each other's place.
void Rearrange(const Spot& spot, const std::vector<Spot>& spots, Random& random) {
  Message& message = *spot.message;
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, spot.field);
  switch (random() % 3) {
    case 0:
      return reflection.RemoveLast(&message, spot.field);
    case 1:
      return reflection.SwapElements(&message, spot.field, spot.index,
                                     static_cast<int>(random() % static_cast<uint64_t>(size)));
    default:
      break;
  }
  if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const std::unique_ptr<Message> copy(
        reflection.GetRepeatedMessage(message, spot.field, spot.index).New());
    copy->CopyFrom(reflection.GetRepeatedMessage(message, spot.field, spot.index));
    reflection.AddMessage(&message, spot.field)->CopyFrom(*copy);
  } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    reflection.AddUInt32(&message, spot.field,
                         Cut<uint32_t>(NumberAt(spots[random() % spots.size()])));
  } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    reflection.AddInt64(&message, spot.field,
                        Cut<int64_t>(NumberAt(spots[random() % spots.size()])));
  }
}

}  // namespace

void MutateExecutable(v1::Executable& executable, v1::Executable& donor, Random& random) {
  std::vector<Spot> spots, others;
  FindSpots(executable, spots);
  if (spots.empty()) return;
  const Spot& spot = spots[random() % spots.size()];
  if (spot.index >= 0 && random() % 4 == 0) return Rearrange(spot, spots, random);
  if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    FindSpots(donor, others);
    std::erase_if(others, [](const Spot& each) {
      return each.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
    });
    if (!others.empty()) ReplaceMessage(spot, others, random);
  } else if (spot.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    static const std::string words[] = {"", "v0", "main", "data", std::string(100, 'l')};
    if (spot.index < 0) {
      spot.message->GetReflection()->SetString(spot.message, spot.field,
                                               words[random() % std::size(words)]);
    }
  } else {
    SetNumber(spot, AnyNumber(spot, spots, random), random);
  }
}

}  // namespace vpod::testing
