// How a word or a part takes along the line of the kernel that says it, for the emulator's reports: as a last parameter
// that nobody writes, handed on to each instruction. nvcc sees nothing of it.
#pragma once

#ifdef __CUDACC__
#define LADDER_SITE_PARAMETER       // behind other parameters
#define LADDER_SITE_ONLY_PARAMETER  // where there are no others
#define LADDER_SITE                 // what is handed on, behind other arguments
#define LADDER_SITE_ALONE           // where there are no others
#define LADDER_SITE_OF(numbered)    // the line of a Numbered
#else
#define LADDER_SITE_PARAMETER , CallSite site = CallSite::current()
#define LADDER_SITE_ONLY_PARAMETER CallSite site = CallSite::current()
#define LADDER_SITE , site
#define LADDER_SITE_ALONE site
#define LADDER_SITE_OF(numbered) , (numbered).site
#endif

// A number that brings its line along: for operator[], which takes one parameter.
struct Numbered {
  int value;
#ifdef __CUDACC__
  __device__ __forceinline__ Numbered(int value) : value(value) {}
#else
  CallSite site;
  Numbered(int value LADDER_SITE_PARAMETER) : value(value), site(site) {}
#endif
};

// Each build of a kernel has words of its own (Build, harness/stages/stage_words.hpp): of one name a linker keeps one.
#if defined(LADDER_BUILD_ZERO)
#define LADDER_OF_BUILD of_zero
#elif defined(LADDER_BUILD_FUSED)
#define LADDER_OF_BUILD of_fused
#else
#define LADDER_OF_BUILD of_pattern
#endif
