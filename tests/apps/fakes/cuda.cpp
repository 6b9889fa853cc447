// A driver with two GPUs, for the tests of `probe`: the functions and numbers of CUDA's driver API that it asks for.
#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {
int cuInit(unsigned) {
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = 10 + index;  // a handle is no index
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Test GPU 80GB");
  return 0;
}
int cuDeviceGetPCIBusId(char* address, int bytes, int device) {
  std::snprintf(address, static_cast<std::size_t>(bytes), "0000:%02X:00.0", device);
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{80} << 30;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 13: *value = 1410000; return 0;   // clock, kHz
    case 16: *value = 108; return 0;       // multiprocessors
    case 36: *value = 1593000; return 0;   // memory clock, kHz
    case 37: *value = 5120; return 0;      // memory bus, bits
    case 38: *value = 41943040; return 0;  // L2
    case 75: *value = 8; return 0;         // compute capability
    case 76: *value = 0; return 0;
    default: return 1;
  }
}
}
