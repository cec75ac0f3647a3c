#include "engine/text/jinja/from_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/files/concat.h"
#include "nlohmann/json.hpp"

namespace sluice::engine::jinja {
namespace {

// Takes the parser's events; false ends the parsing.
class Builder {
 public:
  using Json = nlohmann::json;

  explicit Builder(Environment& env) : env_(env) {}

  bool null() { return Add(Value(None{})); }
  bool boolean(bool value) { return Add(Value(value)); }
  bool number_integer(int64_t value) { return Add(Value(value, Origin::kConversation)); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) return Refuse("a number has more than 64 bits");
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& digits) {
    if (digits.find_first_of(".eE") == std::string::npos) return Refuse("a number has more than 64 bits");
    return Add(Value(value, Origin::kConversation));
  }
  bool string(std::string& value) { return Add(env_.heap().NewText(std::move(value), Origin::kConversation)); }
  bool binary(Json::binary_t&) { return Refuse("binary data"); }
  bool start_object(std::size_t) { return Open(/*is_object=*/true); }
  bool start_array(std::size_t) { return Open(/*is_object=*/false); }
  bool key(std::string& value) {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(std::size_t position, const std::string& token, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: what is wrong"
    std::string what = error.what();
    if (const size_t at = what.find(": "); at != std::string::npos) what.erase(0, at + 2);
    (void)token;
    return Refuse(Concat("not JSON at byte ", position, ": ", what));
  }

  absl::StatusOr<Value> Take(bool parsed) {
    if (parsed) return std::move(value_);
    return absl::InvalidArgumentError(error_);
  }

 private:
  struct Open_ {
    bool is_object;
    std::string key;
    DictBuilder entries;
    std::vector<Value> items;
  };

  bool Refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }

  bool Add(Value value) {
    env_.budget().Step();
    if (open_.empty()) {
      value_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().entries.Set(env_.heap().NewText(std::move(open_.back().key), Origin::kConversation),
                               std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  bool Open(bool is_object) {
    if (static_cast<int>(open_.size()) >= env_.budget().limits().nesting) return Refuse("nested too deeply");
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool Close() {
    Open_ closed = std::move(open_.back());
    open_.pop_back();
    return Add(closed.is_object ? env_.heap().NewDict(std::move(closed.entries))
                                : env_.heap().NewList(std::move(closed.items)));
  }

  Environment& env_;
  std::vector<Open_> open_;
  Value value_;
  std::string error_;
};

}  // namespace

absl::StatusOr<Value> FromJson(Environment& env, std::string_view json) {
  Builder builder(env);
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return builder.Take(parsed);
}

}  // namespace sluice::engine::jinja
