// A management library that counts the two GPUs of cuda.cpp the other way round, as the real one may.
#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {
int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::snprintf(text, bytes, "580.65.06");
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static char first, second;
  *device = std::strcmp(address, "0000:0A:00.0") == 0 ? &second : &first;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  void* other = nullptr;
  nvmlDeviceGetHandleByPciBusId_v2("0000:0A:00.0", &other);
  std::snprintf(text, bytes, device == other ? "GPU-of-0A" : "GPU-of-0B");
  return 0;
}
int nvmlDeviceGetPowerManagementLimit(void*, unsigned* milliwatts) {
  *milliwatts = 400000;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 4;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* width) {
  *width = 16;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  *active = link < 12 ? 1 : 0;
  return 0;
}
}
