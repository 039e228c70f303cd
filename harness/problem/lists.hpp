// The lists of blocks of keys that a Spec's word `blocks` makes, as a kernel gets them: BlockParams, common/attention.hpp.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "harness/stages/rung.hpp"

namespace ladder {

// Of one head of each sequence: all of its heads have the same.
struct BlockLists {
  std::vector<int> lists, counts, order;
  std::vector<uint32_t> stencils;
};

// Kept, for whoever asks next.
std::shared_ptr<const BlockLists> block_lists(const Spec& spec);

}  // namespace ladder
