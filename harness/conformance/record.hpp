// Between the two halves of conformance_record: kernels are launched in record.cu, files are written in record.cpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "harness/conformance/case.hpp"

namespace ladder::conformance {

std::vector<Case> cases_of_gpu();
// What the GPU writes, test.output_words of them.
cudaError_t run_on_gpu(const Case& test, std::vector<uint32_t>& answer);

}  // namespace ladder::conformance
