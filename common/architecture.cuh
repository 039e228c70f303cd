// Every kernel is compiled for every GPU of the build, so that the build need not know which rung runs where. An instruction
// that a GPU does not have ends the kernel there, and what comes after it is not compiled. Nobody meets that end: the harness
// starts no rung on a GPU older than its `min_sm` (harness/stage.hpp).
//
// A function with a newer instruction than sm_75 begins with one of these, before its asm:
//   needs_sm<80>();    an instruction of sm_80 and newer
//   needs_sm<90>();    of sm_90 and newer
//   needs_sm_90a();    of sm_90 alone, which newer GPUs do not have (wgmma, setmaxnreg); it is compiled for sm_90a only
#pragma once

inline namespace ptx {

[[noreturn]] __device__ __forceinline__ void missing_instruction() {
  __trap();
  __builtin_unreachable();  // so that the compiler drops the instruction behind, which the assembler would refuse
}

template <int SM>
__device__ __forceinline__ void needs_sm() {
#if defined(__CUDA_ARCH__)
  if constexpr (__CUDA_ARCH__ < SM * 10) missing_instruction();
#endif
}

__device__ __forceinline__ void needs_sm_90a() {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  missing_instruction();
#endif
}

}  // namespace ptx
