// What the library asks of a GPU; gpu_none.cpp says no.
#pragma once
#include <string>

#include "harness/devices/gpu.hpp"
#include "python/native/append.hpp"
#include "python/native/log_sum_exp.hpp"
#include "python/native/merge.hpp"

namespace ladder {

// What of it decides whether a kernel runs there. The caller's current device stays what it was.
Result<GpuInfo> gpu_numbered(int device);

// Start a kernel in a stream of that GPU; and behind it, unless it is null, another one for LSE.
Status start_on_gpu(const Variant& variant, const Arguments& arguments, const LogSumExpParams* lse, int device,
                    void* stream);
Status append_on_gpu(const AppendParams& params, int device, void* stream);
Status merge_on_gpu(const MergeParams& params, int device, void* stream);

}  // namespace ladder
