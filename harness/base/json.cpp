#include "harness/base/json.hpp"

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
std::string Json::dump(int indent) const {
  return value_->dump(indent);
}

}  // namespace ladder
