#include "harness/measure/nvml.hpp"

#include <dlfcn.h>

#include <utility>

// NVML's own type, hence global: the functions are called by the type that the library gave them.
struct nvmlDevice_st;

namespace ladder {
namespace {

// From the NVML API reference. The header comes with the toolkit, the library with the driver; we need only the latter.
using nvmlDevice = nvmlDevice_st*;
constexpr int NVML_SUCCESS = 0, NVML_TEMPERATURE_GPU = 0;
constexpr unsigned DRIVER_VERSION_LENGTH = 80;

// nvmlClocksThrottleReason*; idle (0x1) and application clocks (0x2) are no throttling.
constexpr uint64_t SOFTWARE_THERMAL = 0x20, HARDWARE_THERMAL = 0x40;
constexpr std::pair<uint64_t, const char*> REASONS[] = {{0x4, "power cap"},
                                                        {0x8, "hardware slowdown"},
                                                        {0x10, "sync boost"},
                                                        {SOFTWARE_THERMAL, "thermal (software)"},
                                                        {HARDWARE_THERMAL, "thermal (hardware)"},
                                                        {0x80, "power brake"},
                                                        {0x100, "display clocks"}};

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  nvmlDevice device = nullptr;
  int (*shut_down)() = nullptr;
  int (*get_driver_version)(char*, unsigned) = nullptr;
  int (*get_power_mw)(nvmlDevice, unsigned*) = nullptr;
  int (*get_temperature)(nvmlDevice, int, unsigned*) = nullptr;
  int (*get_throttle_reasons)(nvmlDevice, unsigned long long*) = nullptr;
  bool initialised = false;

  ~Library() {
    if (initialised) shut_down();
    if (handle) ::dlclose(handle);
  }

  template <class Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
    return function != nullptr;
  }
};

std::optional<Nvml> Nvml::open(const std::string& pci_bus_id, const char* library) {
  auto nvml = std::make_shared<Library>();
  nvml->handle = ::dlopen(library, RTLD_NOW);
  if (!nvml->handle) return {};
  int (*initialise)() = nullptr;
  int (*find_device)(const char*, nvmlDevice*) = nullptr;
  const bool complete = nvml->find(initialise, "nvmlInit_v2") && nvml->find(nvml->shut_down, "nvmlShutdown") &&
                        nvml->find(find_device, "nvmlDeviceGetHandleByPciBusId_v2") &&
                        nvml->find(nvml->get_driver_version, "nvmlSystemGetDriverVersion") &&
                        nvml->find(nvml->get_power_mw, "nvmlDeviceGetPowerUsage") &&
                        nvml->find(nvml->get_temperature, "nvmlDeviceGetTemperature") &&
                        nvml->find(nvml->get_throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  if (!complete || initialise() != NVML_SUCCESS) return {};
  nvml->initialised = true;
  if (find_device(pci_bus_id.c_str(), &nvml->device) != NVML_SUCCESS) return {};
  return Nvml(std::move(nvml));
}

std::string Nvml::driver_version() const {
  char version[DRIVER_VERSION_LENGTH] = "";
  return library_->get_driver_version(version, sizeof version) == NVML_SUCCESS ? version : "";
}

std::optional<CardState> Nvml::now() const {
  unsigned power_mw = 0, temperature = 0;
  unsigned long long reasons = 0;
  if (library_->get_power_mw(library_->device, &power_mw) != NVML_SUCCESS) return {};
  // These two only explain; a card that does not tell them still has a power.
  library_->get_temperature(library_->device, NVML_TEMPERATURE_GPU, &temperature);
  library_->get_throttle_reasons(library_->device, &reasons);
  return CardState{
      .power_w = power_mw / 1000.0, .temperature_c = static_cast<double>(temperature), .throttle_reasons = reasons};
}

std::string throttle_words(uint64_t reasons) {
  std::string words;
  for (const auto& [bit, reason] : REASONS) {
    if (reasons & bit) words += (words.empty() ? "" : ", ") + std::string(reason);
  }
  return words;
}

bool too_hot(uint64_t reasons) {
  return (reasons & (SOFTWARE_THERMAL | HARDWARE_THERMAL)) != 0;
}

}  // namespace ladder
