// Which interval of keys each query sees, as a Spec's words say it: for the tensors that a kernel gets, for the reference, and for
// the predictions of rungs. Without the standard library, as stage_words.hpp.
#pragma once
#include <climits>

#include "harness/stages/hash.hpp"
#include "harness/stages/stage_words.hpp"

namespace ladder {

// The keys from `first` on, before `end`; none where these are none. Both may be any numbers.
struct Interval {
  int first, end;
};

namespace intervals {

// Of the document that a key is in; a query before all keys sees the first one.
inline Interval document_of(const Spec& spec, int64_t sequence, int64_t key) {
  const Intervals& said = spec.intervals;
  Interval of{0, spec.keys()};
  for (int i = 1; i < said.documents; ++i) {
    const uint64_t drawn = hash(hash(hash(uint64_t(said.seed)) + uint64_t(sequence)) + uint64_t(i));
    const int cut = static_cast<int>(drawn % uint64_t(max(spec.keys(), 1)));
    if (cut <= max<int64_t>(key, 0)) {
      of.first = max(of.first, cut);
    } else {
      of.end = min(of.end, cut);
    }
  }
  return of;
}

// Of 50 queries in a row much the same, of which every third time one of eight sees something else, and every ninth time nobody sees
// a key.
inline Interval scattered(const Spec& spec, int64_t sequence, int64_t query) {
  const uint64_t seed = hash(hash(uint64_t(spec.intervals.scattered)) + uint64_t(sequence));
  const uint64_t group = hash(seed ^ uint64_t(query / 50)), own = hash(~seed ^ uint64_t(query));
  const int keys = max(spec.keys(), 1);
  const int first = static_cast<int>(group % uint64_t(keys)) + static_cast<int>(own % 9) - 4;
  const int end = first + static_cast<int>((group >> 20) % uint64_t(keys / 2 + 1)) + static_cast<int>((own >> 8) % 9);
  if ((group >> 40) % 9 == 0) return {first, first};
  if ((group >> 50) % 3 == 0 && (own >> 16) % 8 == 0) {
    const Interval others[] = {{end, end},   {end, first},    {first, first + 1}, {INT_MIN, INT_MAX},
                               {INT_MIN, 0}, {keys, INT_MAX}, {keys - 1, keys}};
    return others[(own >> 24) % 7];
  }
  return {first, end};
}

inline Interval listed(const Spec& spec, int64_t sequence, int64_t query) {
  const Intervals& said = spec.intervals;
  int64_t row = sequence * spec.n + query;
  int i = 0;
  while (i + 1 < said.listed && row >= said.rows[i].count) row -= said.rows[i++].count;
  return {said.rows[i].first, said.rows[i].end};
}

}  // namespace intervals

inline Interval interval_of(const Spec& spec, int64_t sequence, int64_t query) {
  const Intervals& said = spec.intervals;
  const int64_t own = query + spec.keys() - spec.n;  // its key
  Interval of = said.listed > 0      ? intervals::listed(spec, sequence, query)
                : said.scattered > 0 ? intervals::scattered(spec, sequence, query)
                                     : intervals::document_of(spec, sequence, own);
  if (said.prefix >= 0)
    of.end = static_cast<int>(min<int64_t>(of.end, max<int64_t>(own + 1, int64_t{of.first} + said.prefix)));
  return of;
}

inline int64_t queries_of(const Spec& spec, int64_t sequence) {
  return spec.lens_q.count > 0 ? spec.lens_q.of[sequence] : spec.n;
}
inline int64_t keys_of(const Spec& spec, int64_t sequence) {
  return spec.lens_k.count > 0 ? spec.lens_k.of[sequence] : spec.keys();
}

// The keys that a query sees, of all that there are, but for blocks that it does not meet.
inline Interval seen_otherwise(const Spec& spec, int64_t sequence, int64_t query) {
  const int64_t keys = keys_of(spec, sequence), own = query + keys - queries_of(spec, sequence);
  int64_t first = 0, end = keys;
  if (spec.causal) end = min(end, own + 1);
  if (spec.right >= 0) end = min(end, own + spec.right + 1);
  if (spec.left >= 0) first = max(first, own - spec.left);
  if (spec.intervals) {
    const Interval of = interval_of(spec, sequence, query);
    first = max<int64_t>(first, of.first), end = min<int64_t>(end, of.end);
  }
  return {static_cast<int>(min(first, keys)), static_cast<int>(max<int64_t>(end, 0))};
}

}  // namespace ladder
