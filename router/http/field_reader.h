// Reads a JSON object by a table of its fields, event by event. Pure.
//
// Promises: a known field of the wrong type is refused by name; `null` means absent; unknown fields are ignored; a
// field that is given twice is refused; memory stays proportional to what known fields hold, however the JSON is
// nested.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "router/http/json_text.h"
#include "router/http/json_value.h"

namespace sluice::router {

inline constexpr int kNoList = -1;
inline constexpr int kAfterLists = -2;

// One field of a `Request`. What is absent is refused: `set` takes a scalar; `add` an element of the field's array
// (`list` is kNoList, or kAfterLists once there were arrays in it) or of an array in it (`list` is its number; it
// begins with an OpenList); `member` one of the field's object, whose value is a scalar, other values are ignored
// unless `plain`; `raw` takes the JSON of an object or array.
template <typename Request>
struct Field {
  const char* name;
  absl::Status (*set)(Request& out, const char* field, const JsonValue& value) = nullptr;
  absl::Status (*add)(Request& out, const char* field, const JsonValue& value, int list) = nullptr;
  absl::Status (*member)(Request& out, const char* field, const std::string& key, const JsonValue& value) = nullptr;
  absl::Status (*raw)(Request& out, const char* field, std::string json) = nullptr;
  const char* wanted = "a single value";  // for messages
  bool lists = false;                     // its array may hold arrays
  const char* plain = nullptr;            // what members must be
};

template <typename Request>
using Fields = std::vector<Field<Request>>;

template <typename Request>
class FieldReader {
 public:
  using Table = Fields<Request>;
  FieldReader(const Table& table, Request& out) : table_(table), out_(out), seen_(table.size()) {}

  // INVALID_ARGUMENT reads "field: what is wrong", or says where the JSON is broken.
  static absl::Status Read(const Table& table, std::string_view body, Request& out) {
    FieldReader reader(table, out);
    const bool complete = nlohmann::json::sax_parse(body.begin(), body.end(), &reader);
    if (!reader.status_.ok()) return reader.status_;
    return complete ? absl::OkStatus() : absl::InvalidArgumentError("the body is not valid JSON");
  }

  // ---- what the parser calls; false stops it, and `status_` says why ----
  bool null() { return Take(JsonValue()); }
  bool boolean(bool value) { return Take(value); }
  bool number_integer(int64_t value) { return Take(value); }
  bool number_unsigned(uint64_t value) { return Take(value); }
  bool number_float(double value, const std::string& spelled) { return Take(value, spelled); }
  bool string(std::string& value) { return Take(std::move(value)); }
  bool binary(std::vector<uint8_t>&) { return false; }  // no such thing in JSON

  bool key(std::string& name) {
    if (depth_ == 1) return Begin(name);
    if (raw_depth_ > 0) {
      raw_.Key(name);
    } else if (depth_ == 2) {
      member_ = std::move(name);
    }
    return true;
  }

  bool start_object(size_t) {
    if (depth_++ == 0 || field_ == nullptr) return true;
    if (raw_depth_ > 0 || (depth_ == 2 && field_->raw != nullptr)) return OpenRaw('{');
    if (in_object_) return NotPlain("an object");
    if (depth_ == 2 && field_->member != nullptr) return in_object_ = true;
    return Keep(WrongType(field_->name, field_->wanted, depth_ == 2 ? "an object" : "an array of objects"));
  }
  bool end_object() { return raw_depth_ > 0 ? CloseRaw('}') : Leave(); }

  bool start_array(size_t) {
    if (depth_++ == 0) return NotAnObject();
    if (field_ == nullptr) return true;
    if (raw_depth_ > 0 || (depth_ == 2 && field_->raw != nullptr)) return OpenRaw('[');
    if (in_object_) return NotPlain("an array");
    if (field_->add == nullptr) return Keep(WrongType(field_->name, field_->wanted, "an array"));
    if (depth_ == 2) return Keep(field_->add(out_, field_->name, OpenList(), kNoList));
    if (depth_ > 3 || !field_->lists) return Keep(WrongType(field_->name, field_->wanted, "an array of arrays"));
    return Keep(field_->add(out_, field_->name, OpenList(), ++list_));
  }
  bool end_array() { return raw_depth_ > 0 ? CloseRaw(']') : Leave(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return Keep(absl::InvalidArgumentError(absl::StrCat("the body is not valid JSON: error at byte ", position)));
  }

 private:
  bool Keep(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return status_.ok();
  }
  bool NotAnObject() { return Keep(absl::InvalidArgumentError("the body must be a JSON object")); }

  bool Begin(const std::string& name) {
    field_ = nullptr;
    list_ = -1;
    for (size_t i = 0; i < table_.size(); ++i) {
      if (name != table_[i].name) continue;
      field_ = &table_[i];
      if (seen_[i]) return Keep(BadField(name, "is given twice"));
      seen_[i] = true;
    }
    return true;
  }

  int ListNow() const { return depth_ == 3 ? list_ : list_ < 0 ? kNoList : kAfterLists; }

  bool Leave() {
    if (--depth_ == 1) in_object_ = false;
    return true;
  }

  bool OpenRaw(char bracket) {
    ++raw_depth_;
    return raw_.Open(bracket) || Keep(BadField(field_->name, "is nested too deeply"));
  }
  bool CloseRaw(char bracket) {
    raw_.Close(bracket);
    --depth_;
    return --raw_depth_ > 0 || Keep(field_->raw(out_, field_->name, raw_.Take()));
  }

  // A value that opens inside a field's object.
  bool NotPlain(const char* kind) {
    return field_->plain == nullptr || Keep(WrongType(field_->name, field_->plain, kind));
  }

  bool Take(const JsonValue& value, std::string_view spelled = "") {
    if (depth_ == 0) return NotAnObject();
    if (field_ == nullptr) return true;
    if (raw_depth_ > 0) {
      raw_.Scalar(value, spelled);
      return true;
    }
    if (in_object_) return depth_ == 2 ? Keep(field_->member(out_, field_->name, member_, value)) : true;
    if (depth_ > 1) return Keep(field_->add(out_, field_->name, value, ListNow()));
    if (std::holds_alternative<std::monostate>(value)) return true;
    if (field_->set == nullptr) return Keep(WrongType(field_->name, field_->wanted, Kind(value)));
    return Keep(field_->set(out_, field_->name, value));
  }

  const Table& table_;
  Request& out_;
  absl::Status status_;
  int64_t depth_ = 0;                      // 1: inside the body's object
  const Field<Request>* field_ = nullptr;  // at depth 1; null for unknown ones
  bool in_object_ = false;                 // inside the object of field_
  int list_ = -1;                          // the latest array inside the field's array
  std::string member_;
  int64_t raw_depth_ = 0;  // inside the value of a field that takes JSON
  JsonText raw_;
  std::vector<bool> seen_;  // by field
};

}  // namespace sluice::router
