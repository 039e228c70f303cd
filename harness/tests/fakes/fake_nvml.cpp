// A driver library with one card, for nvml_tests.cpp. Its clock falls by 100 MHz with each question.
#include <cstring>

struct nvmlDevice_st {
  unsigned clock_mhz;
};
static nvmlDevice_st card{.clock_mhz = 1980};

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
int nvmlDeviceGetClockInfo(nvmlDevice_st* device, int type, unsigned* mhz) {
  if (device != &card || type != 1) return 2;  // NVML_CLOCK_SM
  *mhz = device->clock_mhz;
  device->clock_mhz -= 100;
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
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_st* device, unsigned long long* reasons) {
  *reasons = device->clock_mhz < 1900 ? 0x4 : 0x1;  // power cap, idle
  return 0;
}
}
