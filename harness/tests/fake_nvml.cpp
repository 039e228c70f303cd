// A driver library with one card, for nvml_tests.cpp. Its clock falls by 100 MHz with each question.
#include <cstring>

extern "C" {
static unsigned clock_mhz = 1980;

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:01:00.0") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  *device = &clock_mhz;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.95.05", length);
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  if (device != &clock_mhz || type != 1) return 2;  // NVML_CLOCK_SM
  *mhz = clock_mhz;
  clock_mhz -= 100;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatt) {
  *milliwatt = 512500;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = clock_mhz < 1900 ? 0x4 : 0x1;  // power cap, idle
  return 0;
}
}
