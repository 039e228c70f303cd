// For the programs of this folder: errors of CUDA's calls, and the last columns of a row.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

void checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// The card, CUDA's version, the commit and the day.
std::string about_this_run() {
  cudaDeviceProp card;
  int runtime = 0;
  checked(cudaGetDeviceProperties(&card, 0), "asking for the card");
  checked(cudaRuntimeGetVersion(&runtime), "asking for the runtime");
  const char* commit = std::getenv("LADDER_COMMIT");
  const std::time_t now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  return std::string(card.name) + "," + std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10) +
         "," + (commit && *commit ? commit : LADDER_COMMIT) + "," + date;
}

}  // namespace
