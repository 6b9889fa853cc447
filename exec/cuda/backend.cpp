// The CUDA backend's memory, waiting, marks and matrix products; operators.cpp has the way from kinds to kernels.
#include "exec/cuda/backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "base/ensure.h"

namespace orrery::exec::cuda {
namespace {

/// NVIDIA's recommendation for Hopper (cuBLAS documentation, cublasSetWorkspace), enough for older GPUs too.
constexpr std::size_t kBlasWorkspace = std::size_t{32} << 20;
constexpr std::size_t kLeastStaging = std::size_t{1} << 16;  // of copies to the device, bytes
constexpr std::size_t kMostStaging = std::size_t{64} << 20;
constexpr Backend::Mark kMarks = 1 << 16;
/// Waiting polls at this interval after a first moment of spinning, so that a lost peer can be noticed.
constexpr int kSpins = 2000;
constexpr std::chrono::microseconds kNap{20};

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failure(fmt::format("cuBLAS: {}: {}", doing, cublasGetStatusString(status)));
}

int select_device(int device) {
  cuda::check(cudaSetDevice(device), "selecting the device");
  return device;
}

std::string name_of_device(int device) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  return properties.name;
}

int blas_int(std::int64_t n) {
  ENSURE(n > 0 && n <= std::numeric_limits<int>::max(), "a matrix product with a dimension of {}", n);
  return static_cast<int>(n);
}

}  // namespace

CudaBackend::CudaBackend(int device)
    : device_(select_device(device)),
      device_name_(name_of_device(device)),
      workspace_(kBlasWorkspace, "allocating cuBLAS's workspace") {
  check(cublasCreate(&blas_), "starting");
  check(cublasSetStream(blas_, stream_.get()), "choosing the stream");
  // After the stream: choosing a stream resets the workspace. Our own makes products repeat bit by bit.
  check(cublasSetWorkspace(blas_, workspace_.data(), workspace_.bytes()), "setting the workspace");
  check(cublasSetMathMode(blas_, CUBLAS_DEFAULT_MATH), "choosing full fp32");
}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(stream_.get());
  if (blas_) cublasDestroy(blas_);
}

std::byte* CudaBackend::allocate_arena(std::int64_t bytes) {
  ENSURE(arena_.data() == nullptr, "a second arena of {} bytes", bytes);
  arena_ = DeviceMemory(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)),
                        fmt::format("allocating an arena of {} bytes", bytes).c_str());
  return static_cast<std::byte*>(arena_.data());
}

void CudaBackend::copy_to_device(std::byte* device, std::span<const std::byte> host) {
  while (!host.empty()) {  // in pieces: page-locked memory is not to be had without end
    const auto piece = host.first(std::min(host.size(), kMostStaging));
    wait_for(staged_);
    if (staging_.bytes() < piece.size()) staging_ = PinnedMemory(std::max(piece.size(), kLeastStaging));
    std::memcpy(staging_.data(), piece.data(), piece.size());
    cuda::check(cudaMemcpyAsync(device, staging_.data(), piece.size(), cudaMemcpyHostToDevice, stream_.get()),
                "copying to the device");
    staged_.record(stream_.get());
    device += piece.size();
    host = host.subspan(piece.size());
  }
}

void CudaBackend::copy_to_host(std::span<std::byte> host, const std::byte* device) {
  if (host.empty()) return;
  synchronise();  // first, because it notices a lost peer and a copy does not
  cuda::check(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_.get()),
              "copying to the host");
  cuda::check(cudaStreamSynchronize(stream_.get()), "copying to the host");
}

void CudaBackend::wait_for(const Event& event) const {
  for (int spins = 0; !event.done(); ++spins) {
    if (spins < kSpins) continue;
    if (watch_) watch_();
    std::this_thread::sleep_for(kNap);
  }
}

void CudaBackend::synchronise() {
  reached_.record(stream_.get());
  wait_for(reached_);
}

Backend::Mark CudaBackend::mark() {
  const auto slot = static_cast<std::size_t>(next_mark_ % kMarks);
  if (slot == marks_.size()) marks_.emplace_back(true);
  marks_[slot].record(stream_.get());
  return next_mark_++;
}

const Event& CudaBackend::event_of(Mark mark) const {
  ENSURE(mark >= 0 && mark < next_mark_ && mark >= next_mark_ - kMarks, "mark {} of {}", mark, next_mark_);
  return marks_[static_cast<std::size_t>(mark % kMarks)];
}

double CudaBackend::seconds_between(Mark from, Mark to) {
  const Event& first = event_of(from);
  const Event& last = event_of(to);
  wait_for(first);
  wait_for(last);
  float milliseconds = 0;
  cuda::check(cudaEventElapsedTime(&milliseconds, first.get(), last.get()), "reading two marks");
  return static_cast<double>(milliseconds) * 1e-3;
}

std::int64_t CudaBackend::outside_arena_bytes() const {
  return static_cast<std::int64_t>(workspace_.bytes()) + ranges_.bytes();
}

// Row-major C (m,n) = op(A) op(B) is column-major C^T (n,m) = op(B)^T op(A)^T. A row-major matrix read column-major is
// its transpose, so B goes first and each operand is transposed for cuBLAS exactly when it is for us.
void CudaBackend::matmul(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out) {
  const int m = blas_int(op.m);
  const int n = blas_int(op.n);
  const int k = blas_int(op.k);
  const float one = 1;
  const float keep = op.accumulate ? 1 : 0;
  const auto* a = reinterpret_cast<const float*>(in[0].data);
  const auto* b = reinterpret_cast<const float*>(in[1].data);
  auto* c = reinterpret_cast<float*>(out[0].data);
  check(cublasSgemm(blas_, op.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, op.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k,
                    &one, b, op.trans_b ? k : n, a, op.trans_a ? m : k, &keep, c, n),
        "a matrix product");
  if (in.size() > 2 && in[2].data)
    add_bias_to_rows(stream_.get(), reinterpret_cast<const float*>(in[2].data), c, op.m, op.n);
}

}  // namespace orrery::exec::cuda
