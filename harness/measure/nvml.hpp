// What the card was doing while a group ran, by NVML (libnvidia-ml, part of the driver), loaded at run time.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "harness/measure/rounds.hpp"

namespace ladder {

class Nvml {
 public:
  // The card with this PCI bus id. Nothing when there is no NVML or no such card: the bench then goes without.
  static std::optional<Nvml> open(const std::string& pci_bus_id, const char* library = "libnvidia-ml.so.1");
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  std::string driver_version() const;  // empty when NVML does not say
  std::optional<CardState> now() const;

  // Polls every 10 ms from a thread of its own, from start() to stop(). The result is the median of each figure; the
  // throttle reasons are those seen in any sample.
  void start();
  std::optional<CardState> stop();

 private:
  struct Library;
  struct Poll;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
  std::unique_ptr<Poll> poll_;
};

// The reasons that slow a loaded card down, in words: "power cap, thermal". Empty when there are none.
std::string throttle_words(uint64_t reasons);

// One state from several: medians, and all throttle reasons together. Nothing from nothing.
std::optional<CardState> summary(std::span<const CardState> states);

}  // namespace ladder
