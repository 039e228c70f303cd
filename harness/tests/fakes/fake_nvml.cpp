// A driver library with one card, for nvml_tests.cpp.
#include <cstring>

struct nvmlDevice_st {};
static nvmlDevice_st card;

extern "C" {
int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_st** device) {
  if (std::strcmp(bus, "0000:01:00.0") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  *device = &card;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.95.05", length);
  return 0;
}
int nvmlDeviceGetPowerUsage(nvmlDevice_st*, unsigned* milliwatt) {
  *milliwatt = 512500;
  return 0;
}
int nvmlDeviceGetTemperature(nvmlDevice_st*, int, unsigned* celsius) {
  *celsius = 61;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_st*, unsigned long long* reasons) {
  *reasons = 0x5;  // power cap, idle
  return 0;
}
}
