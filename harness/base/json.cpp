#include "harness/base/json.hpp"

#include <nlohmann/json.hpp>

namespace ladder {

using Value = nlohmann::ordered_json;

Json::Json() : value_(std::make_shared<Value>()) {}
Json::Json(bool value) : value_(std::make_shared<Value>(value)) {}
Json::Json(int64_t value) : value_(std::make_shared<Value>(value)) {}
Json::Json(uint64_t value) : value_(std::make_shared<Value>(value)) {}
Json::Json(double value) : value_(std::make_shared<Value>(value)) {}
Json::Json(std::string_view text) : value_(std::make_shared<Value>(text)) {}
Json::Json(Members members) : value_(std::make_shared<Value>(Value::object())) {
  for (const auto& [key, member] : members) set(key, member);
}
Json::Json(const Value& value) : value_(std::make_shared<Value>(value)) {}
Json Json::array() {
  return Json(Value::array());
}

Json Json::parse(std::string_view text) {
  const Value value = Value::parse(text, nullptr, false);
  return value.is_discarded() ? Json() : Json(value);
}

Value& Json::own() {
  if (value_.use_count() > 1) value_ = std::make_shared<Value>(*value_);
  return *value_;
}
void Json::set(std::string_view key, const Json& value) {
  own()[std::string(key)] = *value.value_;
}
void Json::push_back(const Json& value) {
  own().push_back(*value.value_);
}
size_t Json::size() const {
  return value_->size();
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
std::string Json::dump() const {
  return value_->dump();
}

std::string by_lines(const std::vector<std::string>& entries, size_t per_line) {
  std::string text = "[";
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) text += ",";
    if (i % per_line == 0) text += "\n";
    text += entries[i];
  }
  return text + "\n]";
}

}  // namespace ladder
