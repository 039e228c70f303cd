#include "harness/problem/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "harness/base/nearest.hpp"
#include "harness/base/text.hpp"
#include "harness/problem/element.hpp"
#include "harness/problem/formula.hpp"

namespace ladder {
namespace {

constexpr int64_t MOST = std::numeric_limits<int>::max();

template <class T>
bool number(std::string_view text, T least, T most, T& value) {
  const auto typed = number_in<T>(text);
  if (typed) value = *typed;
  return typed && value >= least && value <= most;
}

// One word of the text: "causal", or a name and a value, "kv=8".
struct WordRow {
  std::string_view name;
  std::string_view takes;                              // what its value could be; empty: it has none
  std::function<std::string(const Spec&)> print;       // the value, or the word itself; empty where it is left out
  std::function<bool(Spec&, std::string_view)> parse;  // false: no such value
  std::string_view about = "";                         // of words about the same thing a text has one
};

WordRow integer(std::string_view name, int Spec::*field, int least) {
  return {name, least == 0 ? "a whole number from 0 on" : "a whole number from 1 on",
          [=](const Spec& spec) { return spec.*field == 0 ? "" : std::to_string(spec.*field); },
          [=](Spec& spec, std::string_view value) { return number(value, least, int(MOST), spec.*field); }};
}
WordRow real(std::string_view name, float Spec::*field) {
  return {name, "a number above 0",
          [=](const Spec& spec) { return spec.*field > 0 ? fmt::format("{}", spec.*field) : ""; },
          [=](Spec& spec, std::string_view value) {
            return number(value, std::numeric_limits<float>::min(), std::numeric_limits<float>::max(), spec.*field);
          }};
}
WordRow flag(std::string_view name, bool Spec::*field) {
  return {name, "", [=](const Spec& spec) { return spec.*field ? std::string(name) : ""; },
          [=](Spec& spec, std::string_view) { return spec.*field = true; }};
}
constexpr int FEW_ALIKE = 8;  // sequences one behind the other, which are printed one by one

WordRow lengths(std::string_view name, Lengths Spec::*field) {
  static_assert(Lengths::MOST == 320);
  return {name, "a length for each sequence, 320 at most, as in 17,0,512, or 17,3*0,512 for three that are alike",
          [=](const Spec& spec) {
            const Lengths& all = spec.*field;
            std::string text;
            for (int i = 0, alike = 0; i < all.count; i += alike) {
              for (alike = 1; i + alike < all.count && all.of[i + alike] == all.of[i];) ++alike;
              if (alike <= FEW_ALIKE) alike = 1;
              text += fmt::format("{}{}{}", i > 0 ? "," : "", alike > 1 ? fmt::format("{}*", alike) : "", all.of[i]);
            }
            return text;
          },
          [=](Spec& spec, std::string_view value) {
            Lengths all;
            for (std::string_view part : split(value, ',')) {
              int alike = 1, length = 0;
              if (const size_t times = part.find('*'); times != std::string_view::npos) {
                if (!number(part.substr(0, times), 1, int(Lengths::MOST), alike)) return false;
                part.remove_prefix(times + 1);
              }
              if (!number(part, 0, int(MOST), length) || alike > Lengths::MOST - all.count) return false;
              std::fill_n(all.of + all.count, alike, length);
              all.count += alike;
            }
            spec.*field = all;
            return true;
          }};
}
// An interval of keys for each query: one of these words, and `prefix`.
Intervals& without_others(Spec& spec) {
  return spec.intervals = {.prefix = spec.intervals.prefix};
}
WordRow documents() {
  return {"documents", "into how many the keys are cut, and what draws where, as in 5 or 5@7",
          [](const Spec& spec) {
            const Intervals& said = spec.intervals;
            return said.documents == 0 ? ""
                   : said.seed == 1    ? std::to_string(said.documents)
                                       : fmt::format("{}@{}", said.documents, said.seed);
          },
          [](Spec& spec, std::string_view value) {
            const auto parts = split(value, '@');
            Intervals& said = without_others(spec);
            return parts.size() <= 2 && number(parts[0], 1, int(MOST), said.documents) &&
                   (parts.size() < 2 || number(parts[1], 1, int(MOST), said.seed));
          },
          "intervals"};
}
WordRow scattered() {
  return {
      "scattered", "what draws an interval of keys for each query, a whole number from 1 on",
      [](const Spec& spec) { return spec.intervals.scattered == 0 ? "" : std::to_string(spec.intervals.scattered); },
      [](Spec& spec, std::string_view value) { return number(value, 1, int(MOST), without_others(spec).scattered); },
      "intervals"};
}
WordRow intervals() {
  static_assert(Intervals::MOST == 32);
  return {"intervals",
          "the first key and the one behind the last for so many queries, 32 times at most, as in 100*0:70,28*60:90",
          [](const Spec& spec) {
            std::string text;
            for (int i = 0; i < spec.intervals.listed; ++i) {
              const auto& [count, first, end] = spec.intervals.rows[i];
              text += fmt::format("{}{}*{}:{}", i > 0 ? "," : "", count, first, end);
            }
            return text;
          },
          [](Spec& spec, std::string_view value) {
            constexpr int LEAST = std::numeric_limits<int>::min();
            Intervals& said = without_others(spec);
            for (const std::string_view part : split(value, ',')) {
              const size_t times = part.find('*'), ends = part.find(':');
              if (times == part.npos || ends == part.npos || times > ends || said.listed == Intervals::MOST)
                return false;
              auto& [count, first, end] = said.rows[said.listed++];
              if (!number(part.substr(0, times), 1, int(MOST), count) ||
                  !number(part.substr(times + 1, ends - times - 1), LEAST, int(MOST), first) ||
                  !number(part.substr(ends + 1), LEAST, int(MOST), end))
                return false;
            }
            return true;
          },
          "intervals"};
}
WordRow prefix() {
  return {"prefix",
          "how many first keys of its interval a query sees that has not come to them, a whole number from 0 on",
          [](const Spec& spec) { return spec.intervals.prefix < 0 ? "" : std::to_string(spec.intervals.prefix); },
          [](Spec& spec, std::string_view value) { return number(value, 0, int(MOST), spec.intervals.prefix); }};
}
// Which blocks of keys a tile of queries meets.
WordRow blocks() {
  return {"blocks", "how many of all blocks are seen, above 0 and 1 at most, and what draws which, as in 0.3 or 0.3@7",
          [](const Spec& spec) {
            const Blocks& said = spec.blocks;
            return !said            ? ""
                   : said.seed == 1 ? fmt::format("{}", said.density)
                                    : fmt::format("{}@{}", said.density, said.seed);
          },
          [](Spec& spec, std::string_view value) {
            const auto parts = split(value, '@');
            return parts.size() <= 2 &&
                   number(parts[0], std::numeric_limits<float>::min(), 1.0f, spec.blocks.density) &&
                   (parts.size() < 2 || number(parts[1], 1, int(MOST), spec.blocks.seed));
          }};
}
WordRow partial() {
  return {"partial", "how many of the blocks that are seen are so in part, from 0 to 1",
          [](const Spec& spec) { return spec.blocks.partial == 0 ? "" : fmt::format("{}", spec.blocks.partial); },
          [](Spec& spec, std::string_view value) { return number(value, 0.0f, 1.0f, spec.blocks.partial); }};
}
WordRow block_keys() {
  return {"block_keys", "how many keys a block has, 64 or 128 or a multiple of 128",
          [](const Spec& spec) { return spec.blocks.keys == 128 ? "" : std::to_string(spec.blocks.keys); },
          [](Spec& spec, std::string_view value) {
            return number(value, 64, int(MOST), spec.blocks.keys) &&
                   (spec.blocks.keys == 64 || spec.blocks.keys % 128 == 0);
          }};
}
// Of what K and V have a scale.
WordRow scales() {
  static constexpr std::string_view NAMES[] = {"", "head", "token", "channel"};
  return {"scales", "of what keys and values of 8 or 4 bits have a scale each: head, token or channel",
          [](const Spec& spec) { return std::string(NAMES[static_cast<size_t>(spec.scales)]); },
          [](Spec& spec, std::string_view value) {
            const auto found = std::find(std::begin(NAMES) + 1, std::end(NAMES), value);
            if (found != std::end(NAMES)) spec.scales = static_cast<Scales>(found - std::begin(NAMES));
            return found != std::end(NAMES);
          }};
}
WordRow element(const ElementInfo& of) {
  return {of.name, "",
          [&of](const Spec& spec) {
            const bool all = spec.q_type == of.element && spec.kv_type == of.element && spec.o_type == of.element;
            return all && of.element != Element::f16 ? std::string(of.name) : "";
          },
          [&of](Spec& spec, std::string_view) {
            spec.q_type = spec.kv_type = spec.o_type = of.element;
            return true;
          },
          "types"};
}

bool element_named(std::string_view name, Element& element) {
  for (const ElementInfo& each : all_elements()) {
    if (each.name == name) return element = each.element, true;
  }
  return false;
}

// In the order in which they are printed.
const std::vector<WordRow>& words() {
  static const std::vector<WordRow> all = [] {
    std::vector<WordRow> rows;
    for (const Formula* const formula : formulas()) {
      rows.push_back({formula->name, "",
                      [=](const Spec& spec) {
                        return spec.formula == Word(formula->name.data()) && spec.formula != Spec().formula
                                   ? std::string(formula->name)
                                   : "";
                      },
                      [=](Spec& spec, std::string_view) {
                        spec.formula = formula->name.data();
                        return true;
                      },
                      "formula"});
    }
    rows.push_back(integer("b", &Spec::batch, 1));
    rows.push_back(integer("h", &Spec::heads, 1));
    rows.push_back(integer("kv", &Spec::kv_heads, 1));
    rows.push_back({"n", "a whole number from 1 on",
                    [](const Spec& spec) { return spec.n == spec.keys() ? std::to_string(spec.n) : ""; },
                    [](Spec& spec, std::string_view value) {
                      spec.n_k = -1;
                      return number(value, 1, int(MOST), spec.n);
                    }});
    rows.push_back({"nq", "a whole number from 1 on",
                    [](const Spec& spec) { return spec.n != spec.keys() ? std::to_string(spec.n) : ""; },
                    [](Spec& spec, std::string_view value) {
                      spec.n_k = spec.keys();
                      return number(value, 1, int(MOST), spec.n);
                    }});
    rows.push_back({"nk", "a whole number from 0 on",
                    [](const Spec& spec) { return spec.n != spec.keys() ? std::to_string(spec.n_k) : ""; },
                    [](Spec& spec, std::string_view value) { return number(value, 0, int(MOST), spec.n_k); }});
    rows.push_back(integer("d", &Spec::d, 1));
    for (const ElementInfo& each : all_elements()) rows.push_back(element(each));
    rows.push_back({"types",
                    "the types of Q, of K and V, and of O, as in e4m3,e4m3,bf16; beside Q and K in s8 V has that of O",
                    [](const Spec& spec) {
                      const bool same = spec.q_type == spec.kv_type && spec.kv_type == spec.o_type;
                      return same ? ""
                                  : fmt::format("{},{},{}", to_string(spec.q_type), to_string(spec.kv_type),
                                                to_string(spec.o_type));
                    },
                    [](Spec& spec, std::string_view value) {
                      const auto parts = split(value, ',');
                      return parts.size() == 3 && element_named(parts[0], spec.q_type) &&
                             element_named(parts[1], spec.kv_type) && element_named(parts[2], spec.o_type);
                    },
                    "types"});
    rows.push_back(flag("causal", &Spec::causal));
    rows.push_back({"window", "how many keys before a query's own it sees and how many behind, as in 1023,0; -1 is all",
                    [](const Spec& spec) {
                      return spec.left < 0 && spec.right < 0
                                 ? ""
                                 : fmt::format("{},{}", spec.left, spec.causal ? 0 : spec.right);
                    },
                    [](Spec& spec, std::string_view value) {
                      const auto parts = split(value, ',');
                      return parts.size() == 2 && number(parts[0], -1, int(MOST), spec.left) &&
                             number(parts[1], -1, int(MOST), spec.right);
                    }});
    rows.push_back(real("scale", &Spec::softmax_scale));
    rows.push_back(real("softcap", &Spec::softcap));
    rows.push_back(flag("alibi", &Spec::alibi));
    rows.push_back(flag("sink", &Spec::sink));
    rows.push_back({"layout", "bhnd or bnhd",
                    [](const Spec& spec) { return spec.layout == Layout::bnhd ? "bnhd" : ""; },
                    [](Spec& spec, std::string_view value) {
                      spec.layout = value == "bnhd" ? Layout::bnhd : Layout::bhnd;
                      return value == "bnhd" || value == "bhnd";
                    }});
    rows.push_back(integer("pad", &Spec::pad, 0));
    rows.push_back({"cache", "", [](const Spec& spec) { return spec.page < 0 ? "cache" : ""; },
                    [](Spec& spec, std::string_view) { return spec.page = -1; }, "a cache"});
    rows.push_back({"pages", "how many keys a page of the cache has, from 1 on",
                    [](const Spec& spec) { return spec.page > 0 ? std::to_string(spec.page) : ""; },
                    [](Spec& spec, std::string_view value) { return number(value, 1, int(MOST), spec.page); },
                    "a cache"});
    rows.push_back(lengths("lens_q", &Spec::lens_q));
    rows.push_back(lengths("lens_k", &Spec::lens_k));
    for (const auto& row :
         {documents(), scattered(), intervals(), prefix(), blocks(), partial(), block_keys(), scales()})
      rows.push_back(row);
    return rows;
  }();
  return all;
}

// One spelling for one problem.
Spec canonical(Spec spec) {
  if (spec.n_k == spec.n) spec.n_k = -1;
  if (spec.kv_heads == spec.heads) spec.kv_heads = 0;
  if (spec.right == 0) spec.causal = true;
  if (spec.causal) spec.right = -1;
  if (spec.lens_q.count > 0) spec.layout = Layout::bhnd;  // it has one of its own
  if (Spec usual = spec; usual.scales = Scales::usual, usual.scales_per() == spec.scales_per())
    spec.scales = Scales::usual;
  return spec;
}

// Success, or what about it cannot be.
Status check_spec(const Spec& spec) {
  if (spec.heads % spec.key_heads() != 0) {
    return usage("h={} queries' heads cannot share kv={} heads of keys: the one must be a multiple of the other.",
                 spec.heads, spec.key_heads());
  }
  if (spec.kv_type == Element::s4 && spec.d % 2 != 0)
    return usage("Of s4 two columns of K and V share a byte: d={} is odd.", spec.d);
  if (spec.scales != Scales::usual && (!spec.has_scales() || spec.has_Q_scales()))
    return usage("scales says of what K and V of 8 or 4 bits have a scale each, beside Q of 16: types=bf16,e4m3,bf16.");
  const auto fit = [&](const char* word, const Lengths& lens, const char* of, int most) -> Status {
    if (lens.count > 0 && lens.count != spec.batch) {
      return usage("{} has {} lengths for b={} sequences.", word, lens.count, spec.batch);
    }
    for (int i = 0; i < lens.count; ++i) {
      if (lens.of[i] > most) return usage("{}: {} is more than {}={}.", word, lens.of[i], of, most);
    }
    return {};
  };
  if (spec.intervals && spec.lens_q.count > 0)
    return usage(
        "Sequences of several lengths have no intervals of keys: lens_q, or documents, scattered, intervals, prefix.");
  if (spec.blocks && spec.lens_q.count > 0)
    return usage("Sequences of several lengths have no lists of blocks: lens_q, or blocks.");
  if (!spec.blocks && (spec.blocks.partial > 0 || spec.blocks.keys != Blocks{}.keys))
    return usage("partial and block_keys are of blocks that are seen, and blocks says how many those are: blocks=0.3.");
  if (spec.intervals.prefix >= 0 && spec.causal)
    return usage("prefix says that a query sees keys behind its own, and causal that it does not: one of them.");
  const bool square = spec.keys() == spec.n;
  if (const Status status = fit("lens_q", spec.lens_q, square ? "n" : "nq", spec.n); !status) return status;
  return fit("lens_k", spec.lens_k, square ? "n" : "nk", spec.keys());
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts = split(text, ' ');
  std::erase(parts, "");
  return parts;
}

}  // namespace

std::string to_string(const Spec& spec) {
  std::string text;
  for (const WordRow& row : words()) {
    const std::string value = row.print(spec);
    if (value.empty()) continue;
    text +=
        fmt::format("{}{}{}", text.empty() ? "" : " ", row.takes.empty() ? "" : fmt::format("{}=", row.name), value);
  }
  return text;
}

std::string beyond_columns(const Spec& spec) {
  const Spec columns{.batch = spec.batch, .heads = spec.heads, .n = spec.n, .d = spec.d, .causal = spec.causal};
  return spec == columns ? "" : to_string(spec);
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view part : parts_of(text)) names.emplace_back(part.substr(0, part.find('=')));
  return names;
}

Result<Spec> parse_spec(std::string_view text, const Spec& from) {
  Spec spec = from;
  std::vector<const WordRow*> said;
  const auto says = [&](std::string_view word) { return std::ranges::find(said, word, &WordRow::name) != said.end(); };
  for (const std::string_view part : parts_of(text)) {
    const std::string_view name = part.substr(0, part.find('='));
    const auto row = std::ranges::find(words(), name, &WordRow::name);
    if (row == words().end()) {
      std::vector<std::string> names, listed;
      for (const WordRow& each : words()) {
        names.emplace_back(each.name);
        listed.push_back(names.back() + (each.takes.empty() ? "" : "="));
      }
      return usage("A problem has no word '{}'.{}\n  There are: {}", name, did_you_mean(name, names),
                   fmt::join(listed, " "));
    }
    if (says(name)) return usage("{} is said twice in '{}'.", name, text);
    const auto other = std::ranges::find_if(
        said, [&](const WordRow* each) { return !row->about.empty() && each->about == row->about; });
    if (other != said.end()) return usage("'{}' says {} and {}: one of them.", text, (*other)->name, name);
    said.push_back(&*row);
    const bool has_value = name.size() < part.size();
    const std::string_view value = has_value ? part.substr(name.size() + 1) : "";
    if (row->takes.empty() && has_value) return usage("{} stands alone, without '={}'.", name, value);
    if (!row->takes.empty() && !has_value) return usage("{} takes {}: {}=...", name, row->takes, name);
    if (!row->parse(spec, value)) return usage("{} takes {}; '{}' is not.", name, row->takes, value);
  }
  if (says("n") && (says("nq") || says("nk")))
    return usage("n says how many queries and keys there are; nq and nk say it apart.");
  if (says("causal") && spec.right > 0) {
    return usage("Under a causal mask a query sees no key behind its own: window={},0.", spec.left);
  }
  // What follows from what was said.
  if (says("kv") && !says("h") && spec.heads % spec.kv_heads != 0) spec.heads = 2 * spec.kv_heads;
  if (says("lens_q") && !says("b")) spec.batch = spec.lens_q.count;
  if (says("lens_k") && !says("b")) spec.batch = spec.lens_k.count;
  if (spec.has_cache() && spec.lens_q.count > 0)
    return usage("Sequences that use a cache have as many queries each: lens_q goes with keys one behind the other.");
  for (const bool of_keys : {false, true}) {  // one follows from the other
    Lengths &lens = of_keys ? spec.lens_k : spec.lens_q, other = of_keys ? spec.lens_q : spec.lens_k;
    if (lens.count > 0 || other.count == 0 || spec.has_cache()) continue;
    if (of_keys && !says("nk")) {
      lens = other;
      if (!says("n")) spec.n_k = -1;
    } else {
      lens.count = other.count;
      std::fill_n(lens.of, lens.count, of_keys ? spec.keys() : spec.n);
    }
  }
  if (says("lens_q") && !says("n") && !says("nq"))
    spec.n = std::max(1, *std::max_element(spec.lens_q.of, spec.lens_q.of + spec.lens_q.count));
  if (says("lens_k") && !says("n") && !says("nk"))
    spec.n_k = std::max(1, *std::max_element(spec.lens_k.of, spec.lens_k.of + spec.lens_k.count));
  spec = canonical(spec);
  return check_spec(spec).map([&] { return spec; });
}

}  // namespace ladder
