// A peer in C++: the protocol of README.md, the inputs and the time. Copy this file and example.cu, and change the
// kernel.
//
// Compiled by nvcc it works on the GPU and takes time with CUDA events; compiled by a C++20 compiler alone, on the
// host, so that a peer can be tried where there is no GPU. It needs nlohmann-json and nothing of the ladder.
#pragma once
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define PEER_KERNEL_CODE __host__ __device__  // what a kernel may call
#else
#define PEER_KERNEL_CODE
#endif

namespace peer {

constexpr int PROTOCOL = 3;

// What a peer says instead of an answer: why it cannot take part.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#ifdef __CUDACC__
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw Refusal(std::string(call) + ": " + cudaGetErrorString(error));
}
inline void* allocate(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}
inline void release(void* memory) {
  cudaFree(memory);
}
inline void copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}
inline void fill(void* memory, int byte, size_t bytes) {
  check(cudaMemset(memory, byte, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
// Milliseconds of work on the default stream, with nothing else between the two events.
template <class Work>
double time_ms(const Work& work) {
  static cudaEvent_t events[2] = {};
  for (cudaEvent_t& event : events) {
    if (!event) check(cudaEventCreate(&event), "cudaEventCreate");
  }
  check(cudaEventRecord(events[0]), "cudaEventRecord");
  work();
  check(cudaGetLastError(), "the launch");
  check(cudaEventRecord(events[1]), "cudaEventRecord");
  check(cudaEventSynchronize(events[1]), "the kernel");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, events[0], events[1]), "cudaEventElapsedTime");
  return ms;
}
#else
inline void* allocate(size_t bytes) {
  return std::malloc(bytes);
}
inline void release(void* memory) {
  std::free(memory);
}
inline void copy(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void fill(void* memory, int byte, size_t bytes) {
  std::memset(memory, byte, bytes);
}
template <class Work>
double time_ms(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}
#endif

// What is asked, and where: Q, K, V and O are [batch * heads, n, d], contiguous, two bytes an element, in the memory
// that the kernel works on.
struct Problem {
  int batch = 0, heads = 0, n = 0, d = 0;
  bool causal = false;
  float softmax_scale = 0;
  void *Q = nullptr, *K = nullptr, *V = nullptr, *O = nullptr;

  PEER_KERNEL_CODE int64_t rows() const { return int64_t{batch} * heads * n; }
  size_t bytes() const { return static_cast<size_t>(rows()) * d * 2; }
};

// Answers requests until "quit" or the end of the input. `prepare` throws a Refusal for what the peer cannot do;
// `launch` starts one launch and does not wait for it. Standard output belongs to the protocol: messages go to standard
// error.
template <class Prepare, class Launch>
int serve(const std::string& name, const std::string& version, const Prepare& prepare, const Launch& launch) {
  using nlohmann::json;
  using Buffer = std::unique_ptr<void, void (*)(void*)>;
  Problem problem;
  std::vector<Buffer> buffers;
  std::string output_file;
  const auto answer = [&](const json& request) -> json {
    const std::string operation = request["op"];
    if (operation == "prepare") {
      buffers.clear();  // the old ones first
      for (const std::string dtype : request["dtypes"]) {
        if (dtype != "fp16") throw Refusal("no inputs of type " + dtype + " here");
      }
      for (const std::string feature : request["features"]) {
        if (feature != "causal") throw Refusal("no " + feature + " here");
      }
      problem = {.batch = request["batch"],
                 .heads = request["heads"],
                 .n = request["n"],
                 .d = request["d"],
                 .causal = request["causal"],
                 .softmax_scale = request["softmax_scale"]};
      prepare(problem);
      const auto buffer = [&] { return buffers.emplace_back(allocate(problem.bytes()), release).get(); };
      for (const auto& [tensor, file] : {std::pair(&problem.Q, "Q"), {&problem.K, "K"}, {&problem.V, "V"}}) {
        std::vector<char> values(problem.bytes());
        const std::string path = request["tensors"][file];
        if (!std::ifstream(path, std::ios::binary).read(values.data(), std::ssize(values)))
          throw Refusal("cannot read " + path);
        copy(*tensor = buffer(), values.data(), values.size());
      }
      problem.O = buffer();
      output_file = request["tensors"]["O"];
      return {{"ok", true}, {"protocol", PROTOCOL}, {"name", name}, {"version", version}};
    }
    if (operation != "poison" && operation != "run" && operation != "output")
      throw Refusal("no operation " + operation);
    if (buffers.empty()) throw Refusal("nothing is prepared");
    if (operation == "poison") {
      fill(problem.O, 0xff, problem.bytes());  // all bits set are a NaN
      return {{"ok", true}};
    }
    if (operation == "run") {
      const int launches = request["launches"];
      const double ms = time_ms([&] {
        for (int i = 0; i < launches; ++i) launch(problem);
      });
      return {{"ok", true}, {"ms", ms}};
    }
    const size_t row_bytes = static_cast<size_t>(problem.d) * 2;
    std::vector<char> all(problem.bytes());
    copy(all.data(), problem.O, all.size());
    std::ofstream file(output_file, std::ios::binary);
    for (const size_t row : request["rows"]) file.write(&all[row * row_bytes], static_cast<std::streamsize>(row_bytes));
    if (!file.flush()) throw Refusal("cannot write " + output_file);
    return {{"ok", true}};
  };
  for (std::string line; std::getline(std::cin, line);) {
    json reply;
    try {
      const json request = json::parse(line);
      if (request["op"] == "quit") break;
      reply = answer(request);
    } catch (const std::exception& error) {
      reply = {{"ok", false}, {"reason", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
  return 0;
}

}  // namespace peer
