// Temperature, power and what slows the card down, by NVML (libnvidia-ml, part of the driver), loaded at run time.
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
  std::string driver_version() const;  // empty when NVML does not say
  std::optional<CardState> now() const;

 private:
  struct Library;
  explicit Nvml(std::shared_ptr<Library> library) : library_(std::move(library)) {}
  std::shared_ptr<Library> library_;
};

// The reasons that slow a loaded card down, in words: "power cap, thermal". Empty when there are none.
std::string throttle_words(uint64_t reasons);
// Whether it slows itself down because it is too hot: then rates say how hot, not how fast.
bool too_hot(uint64_t reasons);

}  // namespace ladder
