// What was counted, held to what the variant predicts.
#include <fmt/format.h>

#include <algorithm>

#include "harness/verify/check.hpp"

namespace ladder {

bool is_ldmatrix(const emulator::SiteCounts& site) {
  return site.instruction.starts_with("ldmatrix") || site.instruction.starts_with("wmma.load.a") ||
         site.instruction.starts_with("wmma.load.b");
}

const emulator::SiteCounts* worst_ldmatrix(const emulator::Counters& counters) {
  const emulator::SiteCounts* worst = nullptr;
  for (const emulator::SiteCounts& site : counters.sites) {
    if (is_ldmatrix(site) && (worst == nullptr || site.ways() > worst->ways())) worst = &site;
  }
  return worst;
}

double ldmatrix_ways(const emulator::Counters& counters) {
  uint64_t wavefronts = 0, ideal = 0;
  for (const emulator::SiteCounts& site : counters.sites) {
    if (!is_ldmatrix(site)) continue;
    wavefronts += site.wavefronts;
    ideal += site.ideal;
  }
  return ideal == 0 ? 0.0 : static_cast<double>(wavefronts) / static_cast<double>(ideal);
}

namespace {

// The site that adds most wavefronts by conflicts; null if none does.
const emulator::SiteCounts* worst_of_conflicts(const emulator::Counters& counters) {
  const auto extra = [](const emulator::SiteCounts& site) { return site.wavefronts - site.ideal; };
  const auto worst = std::ranges::max_element(counters.sites, {}, extra);
  return worst == counters.sites.end() || extra(*worst) == 0 ? nullptr : &*worst;
}

}  // namespace

void judge_idle_blocks(CheckResult& result, const Variant& variant, const Problem& problem, uint32_t multiprocessors) {
  const emulator::Counters& counters = *result.counters;
  const uint64_t idle = variant.predict ? variant.predict({problem.shape, multiprocessors}).idle_blocks : 0;
  if (variant.recorded && idle == 0) return;
  if (counters.idle_blocks == idle || (problem.ends_only && idle > 0)) return;
  result.fail(FailureKind::counts_differ,
              fmt::format("blocks: {} of {} have written nothing to global memory, predicted {}", counters.idle_blocks,
                          counters.blocks, idle));
}

void judge_counts(CheckResult& result, const Variant& variant, const Problem& problem, uint32_t multiprocessors) {
  const emulator::Counters& counters = *result.counters;
  // Normal scores outgrow the first tile's maximum by a few powers of two, and what outgrows so little needs no rescale. In a
  // window a row may have its first key in the second tile, or one key in the first. Under a softcap a kernel may ask how large
  // scores are beside that, and with ALiBi nearer keys are higher, tile by tile.
  const auto all_are = [&](InputKind kind) {
    return problem.shape.softcap == 0 && !problem.shape.alibi &&
           std::ranges::count(problem.kinds, kind) == std::ssize(problem.kinds);
  };
  const bool is_calm = all_are(InputKind::normal),
             in_window = problem.shape.left >= 0 || problem.shape.right >= 0 || problem.shape.has_listed_keys();
  // Nearly every query's largest score is among the first keys: who begins there knows it from then on.
  const bool is_first = variant.from_first_key && !in_window && all_are(InputKind::sinks35);
  // NaN outgrows nothing: rows of it need no rescale, not even in the first tile.
  const bool has_nan = !std::ranges::all_of(problem.kinds, has_numbers);
  const int br = std::max(1, variant.tile.br);
  const auto warps = static_cast<uint64_t>(problem.shape.batch_heads() * ((problem.shape.n + br - 1) / br)) *
                     static_cast<uint64_t>(variant.tile.warps);
  const int bc = std::max(1, variant.tile.bc), key_tiles = (problem.shape.keys() + bc - 1) / bc;
  const auto differs = [&](std::string message, std::vector<emulator::SourceLine> where = {}) {
    result.fail(FailureKind::counts_differ, std::move(message), "", std::move(where));
  };
  // First, as it names the line that the wavefronts come from.
  const emulator::SiteCounts* const ldmatrix = variant.conflict_ways > 0 ? worst_ldmatrix(counters) : nullptr;
  if (ldmatrix != nullptr && ldmatrix->ways() != variant.conflict_ways) {
    result.fail(FailureKind::conflicts_differ,
                fmt::format("{:.3g}-way bank conflicts, not {:.3g}-way as predicted, of {} from {} at {}",
                            ldmatrix->ways(), variant.conflict_ways, ldmatrix->instruction, ldmatrix->buffer,
                            emulator::to_string({ldmatrix->file, ldmatrix->line})),
                "", {{ldmatrix->file, ldmatrix->line}});
  }
  if (variant.predict) {
    const Launched launched(result.shape, multiprocessors);
    const Counts predicted = variant.predict(launched);
    const Counts most_of_data = variant.most_of_data ? variant.most_of_data(launched) : Counts{};
    const bool says_fewest = predicted.yes_votes > 0 || !variant.recorded;
    const auto rescales =  // beyond the fewest
        says_fewest ? static_cast<int64_t>(counters.yes_votes - in_numbers(predicted.yes_votes)) : 0;
    const uint64_t looks =
        predicted.votes_on_scores == 0 ? 0 : counters.votes_on_scores - in_numbers(predicted.votes_on_scores);
    if (rescales < 0 && !has_nan) {
      differs(fmt::format("votes that say yes: predicted {}, counted {}", in_numbers(predicted.yes_votes),
                          counters.yes_votes));
    } else if (is_first && rescales > static_cast<int64_t>(warps / 4)) {
      differs(
          fmt::format("votes that say yes: {} rescales of {} warps beyond the fewest, where nearly all maxima are "
                      "those of the first key",
                      rescales, warps));
    } else if (is_calm && rescales > static_cast<int64_t>(in_window ? 2 * warps : warps)) {
      differs(fmt::format(
          "votes that say yes: {} rescales beyond the fewest, where normal inputs give none of {} warps more than one",
          rescales, warps));
    }
    for (const emulator::Count& count : emulator::COUNTS) {
      const auto value = count.value;
      if (value == &Counts::yes_votes) continue;
      if ((variant.recorded || count.is(emulator::WHERE_SAID)) && predicted.*value == 0) continue;
      if (count.is(emulator::BY_VALUES) && !(is_calm && problem.exponents.empty())) continue;
      // What is made again, and exchanged besides, runs where it may.
      if (rescales != 0 && (value == &Counts::packs_beside_products || value == &Counts::shuffles_beside_products))
        continue;
      if (value == &Counts::idle_blocks) continue;  // of which there is something to say without a prediction, too
      const uint64_t of_rescales = static_cast<uint64_t>(rescales) * variant.per_rescale.*value;
      uint64_t fewest = in_numbers(predicted.*value) + of_rescales + looks * variant.per_look.*value;
      uint64_t most = fewest + most_of_data.*value + static_cast<uint64_t>(rescales) * variant.most_per_rescale.*value;
      const uint64_t counted = counters.*value;
      // A warp that has been surprised may look at scores first from then on, and for as many tiles of the next queries.
      if (value == &Counts::votes_on_scores)
        most += static_cast<uint64_t>(rescales) * 2 * static_cast<uint64_t>(key_tiles);
      if (value == &Counts::corrections_at_rest) {
        fewest = in_numbers(predicted.*value);  // rows that have not grown need none
        // A warp of NaN does not say yes in its first tile, and so others may have said it more often than by `rescales`.
        if (has_nan) most += warps * variant.per_rescale.*value;
      }
      if (fewest <= counted && (counted <= most || count.is(emulator::MORE_IS_FINE))) continue;
      std::string expected = std::to_string(fewest);
      if (most > fewest) expected += fmt::format(" to {}", most);
      if (of_rescales != 0) expected += fmt::format(", of which {} rescales are {}", rescales, of_rescales);
      std::string message = fmt::format("{}: predicted {}, counted {}", count.words, expected, counted);
      std::vector<emulator::SourceLine> where;
      if (const auto* worst = value == &Counts::conflicts ? worst_of_conflicts(counters) : nullptr) {
        where.push_back({worst->file, worst->line});
        message += fmt::format(", most at {}: {} of {}", emulator::to_string(where.front()), worst->instruction,
                               worst->buffer);
      }
      differs(std::move(message), std::move(where));
    }
  }
  judge_idle_blocks(result, variant, problem, multiprocessors);
  // Without keys there is nothing to hold in it.
  if (const uint64_t said = variant.smem_at(problem.shape.n); said != counters.smem_bytes && problem.shape.keys() > 0) {
    differs(fmt::format("shared memory: the variant says {} bytes per block, the launch asks for {}", said,
                        counters.smem_bytes));
  }
}

bool blocks_are_alike(const Shape& shape) {
  return !shape.causal && shape.left < 0 && shape.right < 0 && shape.lens_q.count == 0 && shape.lens_k.count == 0 &&
         !shape.has_listed_keys();
}

void judge_beside(CheckResult& result, const Variant& variant, const emulator::Counters& own, bool whole,
                  bool of_one_kind) {
  // More of weights, some of which are made again where a maximum has grown, and of what lanes touch together, which is put together
  // from what each has done.
  constexpr double MORE = 1.005, NEARLY = 1.05, AT_ENDS = 64;
  const bool one_length = result.shape.lens_q.count == 0 &&
                          result.shape.lens_k.count == 0;  // else what meets what depends on which sequence comes next
  // What a warp does that is surprised once more than the rung's own.
  const auto of_surprise = [](emulator::CountOf value) {
    return value == &Counts::corrections_at_rest || value == &Counts::exponentials ? 64.0
           : value == &Counts::shuffles                                            ? 8.0
                                                                                   : 1.0;
  };
  const Counts said = variant.recorded && whole && variant.predict ? variant.predict(result.shape) : Counts{};
  for (const emulator::Count& count : emulator::COUNTS) {
    const auto counted = static_cast<double>((*result.counters).*count.value),
               its = static_cast<double>(own.*count.value);
    const bool is_touched = count.value == &Counts::gmem_sectors;
    if (is_touched && !blocks_are_alike(result.shape)) continue;  // the first one may be another one
    if (count.is(emulator::BY_DATA) && !whole && !of_one_kind) continue;
    const bool is_weights = count.value == &Counts::exponentials;
    const bool less = one_length && counted * NEARLY < its;
    bool differs = (count.is(emulator::COST) &&
                    counted > (is_weights || is_touched ? NEARLY : MORE) * its + (is_touched ? AT_ENDS : 0)) ||
                   (count.is(emulator::GAIN) && less);
    if (variant.recorded && whole && said.*count.value == 0) {
      if (count.is(emulator::BY_DATA)) {
        differs |= counted > NEARLY * its + of_surprise(count.value) * static_cast<double>(own.warps);
      } else if (count.is(emulator::MORE_IS_FINE)) {
        differs |= less;
      } else if (!count.is(emulator::WHERE_SAID)) {
        differs |= counted != its;
      }
    }
    if (differs) {
      result.fail(FailureKind::counts_differ,
                  fmt::format("{}: {:.0f}, where the rung's own kernel has {:.0f}", count.words, counted, its));
    }
  }
}

}  // namespace ladder
