// JSON, the values of nlohmann's library without its header, which costs each file that includes it two seconds and a half.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ladder {

class Json {
 public:
  using Members = std::initializer_list<std::pair<std::string_view, Json>>;

  Json();  // null
  Json(bool value);
  Json(int64_t value);
  Json(uint64_t value);
  template <std::integral Number>
  Json(Number value) : Json(std::conditional_t<std::signed_integral<Number>, int64_t, uint64_t>(value)) {}
  Json(double value);  // null where it is no number
  Json(std::string_view text);
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(Members members);  // an object, its members in this order
  explicit Json(const nlohmann::ordered_json& value);
  static Json array();
  // Of what json_of makes of each value.
  template <class Range, class JsonOf = std::identity>
  static Json array(const Range& values, const JsonOf& json_of = {}) {
    Json all = array();
    for (const auto& value : values) all.push_back(json_of(value));
    return all;
  }
  static Json parse(std::string_view text);  // null where the text is no JSON

  void set(std::string_view key, const Json& value);  // of an object, or of null, which becomes one
  void push_back(const Json& value);                  // to an array
  size_t size() const;
  // What it holds; nothing, or null, where it is of another kind.
  std::optional<bool> flag() const;
  std::optional<double> number() const;
  std::optional<std::string> text() const;
  std::vector<Json> elements() const;                         // of an array
  std::vector<std::string> texts() const;                     // of an array, those that are texts
  std::vector<std::pair<std::string, Json>> members() const;  // of an object
  Json operator[](std::string_view key) const;                // of an object
  // One line. Throws for a text that is not UTF-8.
  std::string dump() const;

 private:
  nlohmann::ordered_json& own();

  std::shared_ptr<nlohmann::ordered_json> value_;  // with copies, until one of them changes
};

// An array of these texts, so many in a line: short enough to read, and to compare with diff.
std::string by_lines(const std::vector<std::string>& entries, size_t per_line = 1);

}  // namespace ladder
