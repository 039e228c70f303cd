#include "harness/base/json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ladder {

using Value = nlohmann::ordered_json;

Json::Json() : value_(std::make_unique<Value>()) {}
Json::Json(bool value) : value_(std::make_unique<Value>(value)) {}
Json::Json(int64_t value) : value_(std::make_unique<Value>(value)) {}
Json::Json(uint64_t value) : value_(std::make_unique<Value>(value)) {}
Json::Json(double value) : value_(std::make_unique<Value>(value)) {}
Json::Json(std::string_view text) : value_(std::make_unique<Value>(text)) {}
Json::Json(Members members) : value_(std::make_unique<Value>(Value::object())) {
  for (const auto& [key, member] : members) set(key, member);
}
Json::Json(const Value& value) : value_(std::make_unique<Value>(value)) {}
Json Json::array() {
  return Json(Value::array());
}

std::optional<Json> Json::parse(std::string_view text) {
  const Value value = Value::parse(text, nullptr, false);
  return value.is_discarded() ? std::nullopt : std::optional(Json(value));
}

Json::Json(const Json& other) : value_(std::make_unique<Value>(*other.value_)) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  value_.swap(other.value_);
  return *this;
}
Json::~Json() = default;

void Json::set(std::string_view key, const Json& value) {
  (*value_)[std::string(key)] = *value.value_;
}
void Json::push_back(const Json& value) {
  value_->push_back(*value.value_);
}
bool Json::is_array() const {
  return value_->is_array();
}
size_t Json::size() const {
  return value_->size();
}
std::string Json::at(size_t i) const {
  return value_->at(i).dump();
}
std::optional<bool> Json::flag() const {
  return value_->is_boolean() ? std::optional(value_->get<bool>()) : std::nullopt;
}
std::optional<double> Json::number() const {
  return value_->is_number() ? std::optional(value_->get<double>()) : std::nullopt;
}
std::optional<std::string> Json::text() const {
  return value_->is_string() ? std::optional(value_->get_ref<const std::string&>()) : std::nullopt;
}
std::vector<Json> Json::elements() const {
  std::vector<Json> all;
  if (value_->is_array()) {
    for (const Value& element : *value_) all.push_back(Json(element));
  }
  return all;
}
std::vector<std::string> Json::texts() const {
  std::vector<std::string> all;
  for (const Json& element : elements()) {
    if (auto text = element.text()) all.push_back(std::move(*text));
  }
  return all;
}
std::vector<std::pair<std::string, Json>> Json::members() const {
  std::vector<std::pair<std::string, Json>> all;
  if (value_->is_object()) {
    for (const auto& [key, member] : value_->get_ref<const Value::object_t&>()) all.emplace_back(key, Json(member));
  }
  return all;
}
Json Json::operator[](std::string_view key) const {
  if (!value_->is_object()) return {};
  const auto member = value_->find(std::string(key));
  return member == value_->end() ? Json() : Json(*member);
}
std::string Json::dump(int indent) const {
  return value_->dump(indent);
}

bool is_utf8(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<signed char>(c) >= 0; })) return true;  // nearly always
  try {
    return !Value(text).dump().empty();
  } catch (const Value::type_error&) {
    return false;
  }
}

}  // namespace ladder
