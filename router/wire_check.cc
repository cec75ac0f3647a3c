#include "router/wire_check.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format.h"

namespace sluice::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using google::protobuf::internal::WireFormat;
using google::protobuf::internal::WireFormatLite;

constexpr int kMaxDepth = 64;

absl::Status Malformed(const Descriptor& type, const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError(absl::StrCat("the message is not a valid ", type.full_name()));
  return absl::InvalidArgumentError(absl::StrCat(path, ": is not a valid ", type.full_name()));
}

UnknownField::Type ExpectedType(const FieldDescriptor& field) {
  switch (WireFormat::WireTypeForFieldType(field.type())) {
    case WireFormatLite::WIRETYPE_VARINT:
      return UnknownField::TYPE_VARINT;
    case WireFormatLite::WIRETYPE_FIXED64:
      return UnknownField::TYPE_FIXED64;
    case WireFormatLite::WIRETYPE_FIXED32:
      return UnknownField::TYPE_FIXED32;
    case WireFormatLite::WIRETYPE_START_GROUP:
    case WireFormatLite::WIRETYPE_END_GROUP:
      return UnknownField::TYPE_GROUP;
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
      break;
  }
  return UnknownField::TYPE_LENGTH_DELIMITED;
}

bool RightWireType(const FieldDescriptor& field, UnknownField::Type got) {
  return got == ExpectedType(field) || (field.is_packable() && got == UnknownField::TYPE_LENGTH_DELIMITED);
}

// Whether a packed field's bytes are whole numbers.
bool WholePacked(UnknownField::Type element, const std::string& bytes) {
  if (element == UnknownField::TYPE_FIXED32) return bytes.size() % 4 == 0;
  if (element == UnknownField::TYPE_FIXED64) return bytes.size() % 8 == 0;
  int length = 0;  // of the varint so far
  for (const char byte : bytes) {
    if (++length > 10) return false;
    if ((byte & 0x80) == 0) length = 0;
  }
  return length == 0;
}

absl::Status Check(const Descriptor& type, const std::string& bytes, const std::string& path, int depth) {
  UnknownFieldSet fields;
  if (depth > kMaxDepth || !fields.ParseFromArray(bytes.data(), int(bytes.size()))) return Malformed(type, path);
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& got = fields.field(i);
    const FieldDescriptor* field = type.FindFieldByNumber(got.number());
    if (field == nullptr) continue;
    const std::string name = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    if (!RightWireType(*field, got.type())) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": has the wrong wire type; it must be ",
                                                     field->is_repeated() ? "repeated " : "", field->type_name()));
    }
    if (got.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    const std::string& value = got.length_delimited();
    if (field->type() == FieldDescriptor::TYPE_STRING && engine::ValidPrefix(value) != value.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": is not valid UTF-8 (byte ", engine::ValidPrefix(value), ")"));
    }
    if (field->is_packable() && !WholePacked(ExpectedType(*field), value)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": is cut short inside a number"));
    }
    if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      if (absl::Status status = Check(*field->message_type(), value, name, depth + 1); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWire(const Descriptor& type, const std::string& bytes) {
  return Check(type, bytes, "", 0);
}

}  // namespace sluice::router
