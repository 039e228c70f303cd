// A trace as a file: what `ladder explain STAGE --trace FILE` writes and the site's player reads.
#pragma once
#include <string>

#include "harness/devices/emulator_run.hpp"

namespace ladder {

// One JSON object:
//   "format"            TRACE_FORMAT
//   "stage" "variant" "batch" "heads" "n" "d" "causal" "tile": {"br", "bc", "warps"}
//   "global"            the registered buffers: {"buffer", "bytes"}
//   "shared"            named regions of shared memory: {"launch", "buffer", "offset", "bytes"}
//   "sites"             who issues: {"launch", "instruction", "file", "line"}, then where they apply "bytes" moved by the
//                       warp, "shared" and "global" {"buffer", "bytes" from the lowest to behind the highest}, "operand",
//                       "threads" (TraceEvent)
//   "events"            in order, [site, warp, offset in "shared" if it touches it, offset in "global" if it touches it]
//   "source"            the kernel's lines, where its file can be read
inline constexpr std::string_view TRACE_FORMAT = "flash-ladder trace 1";

std::string trace_document(const Rung& rung, const Variant& variant, const Shape& shape, const EmulatorRun& run);

}  // namespace ladder
