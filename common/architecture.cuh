// Every kernel is compiled for every GPU of the build, so that the build need not know which rung runs where. An
// instruction that a GPU does not have ends the kernel there, and what comes after it is not compiled. Nobody meets
// that end: the harness starts no rung on a GPU older than its `min_sm` or newer than its `max_sm` (harness/stages/stage.hpp).
//
// A function with a newer instruction than sm_75 begins with one of these, before its asm:
//   needs_sm<80>();    an instruction of sm_80 and newer
//   needs_sm<90>();    of sm_90 and newer
//   needs_sm_90a();    one that is compiled for sm_90a only, whose code runs on no other GPU, older or newer. wgmma no
//                      other GPU has; setmaxnreg newer ones have too, in code of their own (sm_100a, sm_120a);
//                      multicast sm_90 has as well, but PTX advises sm_90a for its speed
#pragma once

inline namespace ptx {

[[noreturn]] __device__ __forceinline__ void missing_instruction() {
  __trap();
  __builtin_unreachable();  // so that the compiler drops the instruction that follows, which the assembler would refuse
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
