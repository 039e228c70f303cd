// Splitting host work over the machine's cores.
#pragma once
#include <cstdint>
#include <functional>

namespace ladder {

// Calls work(begin, end) for consecutive ranges that cover [0, count), from several threads. The first that `work` throws is thrown here.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace ladder
