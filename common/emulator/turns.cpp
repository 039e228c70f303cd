#include "common/emulator/turns.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include "common/emulator/global_shadow.hpp"

namespace emulator {

void join(Sums& into, const Sums& from) {
  for (const auto& [thread, count] : from) {
    uint32_t& known = into[thread];
    known = std::max(known, count);
  }
}

// ---- workers ------------------------------------------------------------------------------------------------------

void Turns::finish(bool has_failed) {
  const std::lock_guard guard(mutex_);
  has_failed_ |= has_failed;
  if (--working_ > 0 || waiting_ == 0) return;
  is_stuck_ = true;
  changed_.notify_all();
}

bool Turns::has_failed() const {
  const std::lock_guard guard(mutex_);
  return has_failed_;
}

uint64_t Turns::changes() const {
  const std::lock_guard guard(mutex_);
  return changes_;
}

bool Turns::wait_for_change(uint64_t seen) {
  constexpr std::chrono::milliseconds LOOKS_UP{20};  // whether the launch is to end
  std::unique_lock lock(mutex_);
  if (changes_ != seen) return true;
  ++waiting_;
  if (--working_ == 0) {
    is_stuck_ = true;
    changed_.notify_all();
  }
  while (changes_ == seen && !is_stuck_ && (stop_ == nullptr || !*stop_)) changed_.wait_for(lock, LOOKS_UP);
  if (changes_ != seen) return true;  // who has changed it counts this one among those who work
  --waiting_;
  ++working_;
  return false;
}

// ---- words --------------------------------------------------------------------------------------------------------

uint32_t Turns::change(uint32_t* word, Next* next, uint32_t operand, Sums& released) {
  const std::lock_guard guard(mutex_);
  std::atomic_ref own(*word);
  const uint32_t before = own.load();
  own.store(next(before, operand));
  if (const auto known = words_.find(word); known != words_.end()) join(released, known->second);
  if (!released.empty()) words_[word] = released;
  ++changes_;
  working_ += std::exchange(waiting_, 0);
  changed_.notify_all();
  return before;
}

std::optional<Sums> Turns::acquire(const uint32_t* word, uint32_t value) const {
  const std::lock_guard guard(mutex_);
  if (std::atomic_ref(*const_cast<uint32_t*>(word)).load() != value) return std::nullopt;
  const auto known = words_.find(word);
  return known == words_.end() ? Sums() : known->second;
}

// ---- sums ---------------------------------------------------------------------------------------------------------

std::optional<Turns::Adder> Turns::add_to(const std::byte* first, uint32_t bytes, const Adder& own, const Sums& known) {
  const std::lock_guard guard(mutex_);
  adders_.push_back(own);
  const auto number = static_cast<uint32_t>(adders_.size());
  std::optional<Adder> unknown;
  uint32_t judged = 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(first) / sizeof(float);
  for (uintptr_t word = begin; word < begin + bytes / sizeof(float); ++word) {
    std::unique_ptr<Page>& page = pages_[word / PAGE_WORDS];
    if (page == nullptr) page = std::make_unique<Page>();
    const uint32_t before = std::exchange((*page)[word % PAGE_WORDS], number);
    if (before == judged) continue;
    judged = before;
    if (before == 0 || unknown) continue;
    const Adder& other = adders_[before - 1];
    const auto there = known.find(other.in_grid());
    if (there == known.end() || there->second < other.number) unknown = other;
  }
  return unknown;
}

uint32_t BlockSums::add(const Actor& actor, std::optional<size_t> by_engine) {
  std::vector<Added>& own = added_[actor.thread];
  own.push_back({races_.cell_of(actor), by_engine});
  return static_cast<uint32_t>(own.size());
}

void BlockSums::acquire(const Actor& actor, const Sums& known) {
  std::vector<Told>& own = told_[actor.thread];
  Sums all = own.empty() ? Sums() : own.back().known;
  join(all, known);
  own.push_back({races_.cell_of(actor), std::move(all)});
}

bool BlockSums::knows(const Actor& actor, uint64_t write) {
  const Turns::Adder other{GlobalShadow::block_of(write), GlobalShadow::thread_of(write),
                           GlobalShadow::which_of(write)};
  return any_told(actor, [&](const Sums& told) {
    const auto its = told.find(other.in_grid() | kind_);
    return its != told.end() && its->second >= other.number;
  });
}

Sums BlockSums::known_to(const Actor& actor, uint64_t block) {
  Sums known;
  any_told(actor, [&](const Sums& told) {
    join(known, told);
    return false;
  });
  for (const auto& [thread, added] : added_) {
    const auto last = std::ranges::partition_point(added, [&](const Added& each) {
      return each.by_engine ? order_.is_there(*each.by_engine, actor) : races_.is_ordered(each.cell, actor);
    });
    if (last != added.begin())
      join(known, {{Turns::Adder{block, thread}.in_grid() | kind_, static_cast<uint32_t>(last - added.begin())}});
  }
  return known;
}

}  // namespace emulator
