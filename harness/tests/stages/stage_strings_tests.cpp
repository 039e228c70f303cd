// Every number in what a stage says of itself. In `idea` and `limit` it is a fact, and in `prediction` too unless it says
// how fast the rung will be: then it is computed here, from the metadata of the stage and of the one before or from what
// the emulator counts, or the stage lists it under `uncounted`. A number that is neither is a statement that no test reads.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/measure/csv.hpp"
#include "harness/problem/formula.hpp"
#include "harness/stage.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"

namespace {

using namespace ladder;

// "32 wavefronts", "64x128", "8-way", "1.5x", "16th", "N = 512".
struct Number {
  std::string text;        // as written, thousands separated by commas
  std::string unit;        // the word after it, or what is attached to it
  std::string before;      // all that stands before it
  bool is_range = false;   // one end of "13 to 15", which is no "from 32 to 4"
  bool is_signed = false;  // +5 %
  double value() const {
    std::string digits = text;
    std::erase(digits, ',');
    return std::stod(digits);
  }
};

bool digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c));
}
bool letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Names (92_quicker, H200, m16n8k16, .x4, 2^8) are no numbers.
std::vector<Number> numbers_of(std::string_view text) {
  std::vector<Number> numbers;
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size();) {
    const char before = at > 0 ? text[at - 1] : ' ';
    if (!digit(text[at]) || letter(before) || before == '^' || before == '.') {
      ++at;
      continue;
    }
    size_t end = at;
    const auto goes_on = [&](size_t i) {
      return digit(text[i]) || ((text[i] == ',' || text[i] == '.') && i + 1 < text.size() && digit(text[i + 1]));
    };
    while (end < text.size() && goes_on(end)) ++end;
    Number number{
        .text = std::string(text.substr(at, end - at)), .unit = {}, .before = std::string(text.substr(0, at))};
    number.is_signed = before == '+' || before == '-';
    size_t word = end;
    while (word < text.size() && (text[word] == ' ' || text[word] == '-')) ++word;
    size_t word_end = word;
    while (word_end < text.size() && (letter(text[word_end]) || text[word_end] == '%' || text[word_end] == '/'))
      ++word_end;
    number.unit = end < text.size() && text[end] == '^' ? "^" : std::string(text.substr(word, word_end - word));
    at = word == end ? std::max(word_end, end) : end;
    const bool attached = word == end && word_end > end;
    if (attached && number.unit != "x" && number.unit != "th" && !(number.unit[0] == 'x' && digit(number.unit[1])))
      continue;
    if (attached && number.unit.size() > 1 && number.unit[0] == 'x') {  // a tile
      number.text += number.unit;
      number.unit = "tile";
    }
    if (!numbers.empty() && text.substr(ends.back(), number.before.size() - ends.back()) == " to ") {
      Number& low = numbers.back();
      low.is_range = number.is_range = !low.before.ends_with("from ");
      low.unit = number.unit;
    }
    ends.push_back(at);
    numbers.push_back(std::move(number));
  }
  return numbers;
}

bool says_how_fast(const Number& number) {
  return number.is_range || number.is_signed || number.unit == "x" || number.unit == "times" || number.unit == "%" ||
         number.unit == "TFLOPS" || number.unit == "TB/s";
}

const emulator::Counters& counted(const Stage& stage) {
  static std::map<std::string_view, emulator::Counters> known;
  const auto place = known.find(stage.name);
  if (place != known.end()) return place->second;
  static const Problem problem = make_problem({.n = 512}, InputKind::normal, 1);
  return known.emplace(stage.name, *check_on_emulator(stage, stage.variants[0], problem).counters).first->second;
}

// What a number of this unit may be in a sentence about `stage` and the one it starts from.
std::vector<double> computed(const Number& number, const Stage& stage) {
  std::vector<const Stage*> both{&stage};
  if (const Stage* before = previous_of(stage)) both.push_back(before);
  std::vector<double> values;
  for (const Stage* each : both) {
    const Variant& variant = each->variants[0];
    const Tile tile = variant.tile;
    const double threads = tile.warps * 32.0, d = each->variants[0].max_d;
    const std::string& unit = number.unit;
    if (unit == "rows" || unit == "row" || unit == "query" || unit == "queries" || unit == "different") {
      // Of an mma, a block, a warp; one for each lane.
      values.insert(values.end(), {16.0, double(tile.br), double(tile.br) / std::max(1, tile.warps), 32.0});
    } else if (unit == "lines") {  // of L1: one for each lane
      values.push_back(32);
    } else if (unit == "groups") {  // of eight lanes, in a block
      values.push_back(threads / 8);
    } else if (unit == "keys") {
      values.push_back(tile.bc);
    } else if (unit == "registers") {
      for (const ResourceBound& bound : each->resources) values.push_back(bound.registers);
    } else if (unit == "warps" || number.before.ends_with("blocks of ")) {
      for (const Variant& other : each->variants) values.push_back(other.tile.warps);
    } else if (unit == "way") {
      values.push_back(variant.conflict_ways);
    } else if (unit == "tiles" ||
               unit == "of") {  // of keys, at the headline's N; a causal block sees half, and its own
      const double tiles = 8192.0 / std::max(1, tile.bc);
      values.insert(values.end(), {tiles, (tiles + 1) / 2});
    } else if (unit == "accumulators" || unit == "stores") {  // of O, in a lane; two go in a store
      const double accumulators = tile.br * d / threads;
      values.push_back(unit == "stores" ? accumulators / 2 : accumulators);
    } else if (unit == "cp") {  // of 16 bytes: what a warp executes for a tile of K and of V
      values.push_back(2 * tile.bc * d * 2 / 16 / threads);
    } else if (unit == "bytes" || unit == "byte") {  // of an f16, of two, of a copy; of a warp's; of a row
      values.insert(values.end(), {2.0, 4.0, 16.0, 64.0, 128.0, 512.0, 2 * d});
    }
  }
  if (number.unit == "FLOP") {  // for each wavefront
    const double flops = flops_of({.n = 512}) / static_cast<double>(counted(stage).smem_wavefronts);
    values.insert(values.end(), {std::floor(flops), std::ceil(flops)});
  }
  const bool at_512 = number.unit == "wavefronts" || number.unit == "of" || number.unit == "at";
  if (at_512 && number.value() > 10000) {
    const double own = static_cast<double>(counted(stage).smem_wavefronts);
    values.push_back(own);
    if (both.size() == 2) {
      const double before = static_cast<double>(counted(*both[1]).smem_wavefronts);
      values.insert(values.end(), {before, before - own});
    }
  }
  // An ldmatrix.x4 reads four matrices: as many wavefronts as its conflicts have ways, each.
  if (number.before.ends_with("wavefronts per ldmatrix fall from "))
    values = {4 * both.back()->variants[0].conflict_ways};
  if (number.before.ends_with("to ") && number.before.find("wavefronts per ldmatrix fall from ") != std::string::npos) {
    values.push_back(4 * stage.variants[0].conflict_ways);
  }
  return values;
}

// Whether the number needs no value: the name of a rung (08, or that of the one before), a shape, a variant's tile.
bool is_name(const Number& number, const Stage& stage) {
  const Stage* const before = previous_of(stage);
  if (number.text[0] == '0' && number.text.find('.') == std::string::npos) return true;
  if (before && before->name.starts_with(number.text + "_")) return true;
  if (number.unit == "^" || number.before.ends_with("= ") || number.before.ends_with("part ")) return true;
  if (number.unit != "tile") return false;
  for (const Stage* each : {&stage, before}) {
    if (!each) continue;
    for (const Variant& variant : each->variants) {
      if (variant.label.starts_with(number.text)) return true;
      if (number.text == fmt::format("16x{}", variant.tile.bc)) return true;  // the scores of a warp
    }
  }
  return false;
}

bool is_uncounted(const Number& number, const Stage& stage) {
  return std::ranges::find(stage.uncounted, number.text) != stage.uncounted.end();
}

// The numbers that nobody vouches for.
std::vector<std::string> loose_numbers(const Stage& stage) {
  std::vector<std::string> loose;
  for (const auto& [what, text] :
       {std::pair{"idea", stage.idea}, std::pair{"limit", stage.limit}, std::pair{"prediction", stage.prediction}}) {
    for (const Number& number : numbers_of(text)) {
      if (is_name(number, stage) || (text == stage.prediction && says_how_fast(number))) continue;
      if (is_uncounted(number, stage)) continue;
      const std::vector<double> values = computed(number, stage);
      if (number.unit != "tile" && std::ranges::find(values, number.value()) != values.end()) continue;
      loose.push_back(fmt::format("{}: {} {}", what, number.text, number.unit));
    }
  }
  return loose;
}

Stage sample(std::string_view limit, std::string_view prediction = "") {
  Stage stage{.name = "99_sample", .idea = "", .limit = limit, .prediction = prediction};
  stage.variants = {{.label = "64x128, 4 warps", .tile = {64, 128, 4}, .conflict_ways = 8}};
  return stage;
}

}  // namespace

TEST_CASE("every number that a stage states is computed here, or listed as uncounted", "[ladder]") {
  for (const Stage& stage : stages()) {
    INFO(stage.name);
    CHECK(loose_numbers(stage) == std::vector<std::string>{});
  }
}

TEST_CASE("what a stage lists as uncounted stands in its words, and is there because nothing computes it", "[ladder]") {
  for (const Stage& stage : stages()) {
    for (const std::string_view listed : stage.uncounted) {
      INFO(stage.name << ": " << listed);
      bool needed = false;
      for (const std::string_view text : {stage.idea, stage.limit, stage.prediction}) {
        for (const Number& number : numbers_of(text)) {
          if (number.text != listed || is_name(number, stage)) continue;
          if (text == stage.prediction && says_how_fast(number)) continue;
          const std::vector<double> values = computed(number, stage);
          needed = needed || number.unit == "tile" || std::ranges::find(values, number.value()) == values.end();
        }
      }
      CHECK(needed);
    }
  }
}

TEST_CASE("a number that is wrong, or that nobody computes, is seen", "[ladder]") {
  using Loose = std::vector<std::string>;
  CHECK(loose_numbers(sample("A warp has 16 query rows of 256 bytes, and ldmatrix.x4 has 8-way conflicts.")).empty());
  CHECK(loose_numbers(sample("4-way conflicts")) == Loose{"limit: 4 way"});
  CHECK(loose_numbers(sample("128 B per clock")) == Loose{"limit: 128 B"});
  CHECK(loose_numbers(sample("+5 % on an H200")) == Loose{"limit: 5 %"});  // how fast it is, is no limit
  CHECK(loose_numbers(sample("", "+5 % to +15 %, 2x to 3x, 1 to 3 TFLOPS at N = 8192; 40 to 50.")).empty());
  CHECK(loose_numbers(sample("", "four mma (about 64 cycles) per ldmatrix (about 30)")) ==
        Loose{"prediction: 64 cycles", "prediction: 30 "});
  CHECK(loose_numbers(sample("", "wavefronts per ldmatrix fall from 32 to 4")).size() == 1);  // it stays at 32
  Stage listed = sample("1,850 instructions");
  CHECK(loose_numbers(listed) == Loose{"limit: 1,850 instructions"});
  listed.uncounted = {"1,850"};
  CHECK(loose_numbers(listed).empty());
}

TEST_CASE("a stage that multiplies by wgmma says that newer GPUs have not got it", "[ladder]") {
  for (const Stage& stage : stages()) {
    INFO(stage.name);
    if (stage.needs.starts_with("wgmma")) CHECK((stage.min_sm == 90 && stage.max_sm == 90));
  }
}
