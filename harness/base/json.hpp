// JSON, the values of nlohmann's library without its header, which costs each file that includes it two seconds and a half.
#pragma once
#include <concepts>
#include <cstdint>
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
  template <class Range>
  static Json array(const Range& values) {
    Json all = array();
    for (const auto& value : values) all.push_back(Json(value));
    return all;
  }
  // Nothing where the text is no JSON.
  static std::optional<Json> parse(std::string_view text);

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  void set(std::string_view key, const Json& value);  // of an object, or of null, which becomes one
  void push_back(const Json& value);                  // to an array
  bool is_array() const;
  size_t size() const;
  std::string at(size_t i) const;  // of an array, in one line
  // What it holds; nothing, or null, where it is of another kind.
  std::optional<bool> flag() const;
  std::optional<double> number() const;
  std::optional<std::string> text() const;
  std::vector<Json> elements() const;                         // of an array
  std::vector<std::string> texts() const;                     // of an array, those that are texts
  std::vector<std::pair<std::string, Json>> members() const;  // of an object
  Json operator[](std::string_view key) const;                // of an object
  // One line, or indented. Throws for a text that is not UTF-8.
  std::string dump(int indent = -1) const;

 private:
  std::unique_ptr<nlohmann::ordered_json> value_;
};

bool is_utf8(std::string_view text);

}  // namespace ladder
