#include "python/native/gpu.hpp"

namespace ladder {

Result<GpuInfo> gpu_numbered(int) {
  return failure(ExitCode::cannot_run_here, "This build of flash_ladder has no kernels for a GPU: " LADDER_NO_GPU_HALF
                                            ".\n  With nvcc:  pip install --force-reinstall .\n  Here:  tensors "
                                            "on the CPU run the same kernels, emulated");
}

Status start_on_gpu(const Variant&, const Arguments&, const LogSumExpParams*, int device, void*) {
  return Unexpected{gpu_numbered(device).error()};
}

Status append_on_gpu(const AppendParams&, int device, void*) {
  return Unexpected{gpu_numbered(device).error()};
}

Status merge_on_gpu(const MergeParams&, int device, void*) {
  return Unexpected{gpu_numbered(device).error()};
}

}  // namespace ladder
