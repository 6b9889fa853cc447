// The CUDA backend's memory, waiting, marks and matrix products; operators.cpp maps kinds to kernels.
#include "exec/cuda/backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/ensure.h"
#include "exec/cuda/call.h"
#include "exec/cuda/kernels/fp8.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

/// NVIDIA's recommendation for Hopper (cuBLAS documentation, cublasSetWorkspace); also enough for older GPUs. Kernels
/// that need memory beside their operands share it: there is one stream, and one kernel at a time.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;
constexpr std::size_t kBiasSums = std::size_t{256} << 10;    // bytes: 65,536 outputs in fp32; for more, apart
constexpr std::size_t kLeastStaging = std::size_t{1} << 16;  // bytes of copies to the device
constexpr std::size_t kMostStaging = std::size_t{64} << 20;
constexpr Backend::Mark kMarks = 1 << 16;
/// After a short spin, waiting polls at this interval, so that a lost peer is noticed.
constexpr int kSpins = 2000;
constexpr std::chrono::microseconds kNap{20};
constexpr int kEightBits = 89;  // compute capability of the first tensor cores with fp8 (Ada)

int select_device(int device) {
  check(cudaSetDevice(device), "selecting the device");
  return device;
}

/// Without cuDNN, or if it does not start, our own kernels are used; `why` gives the reason.
std::unique_ptr<CudnnAttention> open_attention(bool repeat, std::int64_t device_bytes, std::string& why) {
  const CudnnApi* api = find_cudnn(why);
  if (!api) {
    why = "no cuDNN: " + why;
    return nullptr;
  }
  try {
    return std::make_unique<CudnnAttention>(*api, repeat, attention_workspace(device_bytes));
  } catch (const Failure& failure) {
    why = failure.what();
    return nullptr;
  }
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  return properties;
}

int capability_of(int device) {
  const cudaDeviceProp properties = properties_of(device);
  return 10 * properties.major + properties.minor;
}

}  // namespace

CudaBackend::CudaBackend(int device, std::unique_ptr<Backend> host, Products::Options products, bool repeat)
    : device_(select_device(device)),
      device_name_(properties_of(device).name),
      host_(std::move(host)),
      products_(device_name_, kWorkspace, std::move(products)),
      bias_sums_(kBiasSums, "allocating the sums of bias gradients"),
      capability_(capability_of(device)),
      epilogues_(products_, capability_),
      step_values_(sizeof(StepValues), "allocating what changes from step to step"),
      counter_(sizeof(unsigned), "allocating a counter") {
  check(cudaMemsetAsync(counter_.data(), 0, counter_.bytes(), stream_.get()), "clearing a counter");
  cudnn_ = open_attention(repeat, static_cast<std::int64_t>(properties_of(device).totalGlobalMem), no_cudnn_);
}

std::string CudaBackend::refusal(models::DType precision) const {
  if (precision != models::DType::fp8 || capability_ >= kEightBits) return {};
  return fmt::format(
      "the plan computes in fp8, which needs compute capability 8.9 (Ada, Hopper or later), but {} has {}.{}",
      device_name_, capability_ / 10, capability_ % 10);
}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(stream_.get());
}

std::byte* CudaBackend::allocate_arena(std::int64_t bytes) {
  arenas_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)),
                       fmt::format("allocating an arena of {} bytes", bytes).c_str());
  return static_cast<std::byte*>(arenas_.back().data());
}

std::byte* CudaBackend::allocate_host(std::int64_t bytes) {
  host_arenas_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  return host_arenas_.back().data();
}

bool CudaBackend::on_device(const std::byte* address) const {
  return std::any_of(arenas_.begin(), arenas_.end(), [&](const DeviceMemory& arena) {
    const auto* const first = static_cast<const std::byte*>(arena.data());
    return address >= first && address < first + arena.bytes();
  });
}

// All operands of a host step are in host memory.
bool CudaBackend::on_host(std::span<const Operand> in, std::span<const Operand> out) const {
  if (host_arenas_.empty()) return false;
  for (const std::span<const Operand> side : {out, in})
    for (const Operand& operand : side) {
      if (!operand.data) continue;
      for (const PinnedMemory& memory : host_arenas_)
        if (operand.data >= memory.data() && operand.data < memory.data() + memory.bytes()) return true;
      return false;
    }
  return false;
}

Backend& CudaBackend::host_backend() const {
  if (!host_)
    throw Failure("the CUDA backend was made without a backend for the host's cores, which this plan needs",
                  FailureKind::environment);
  return *host_;
}

CudaBackend::Lane& CudaBackend::lane() {
  const std::lock_guard guard(lanes_lock_);
  std::unique_ptr<Lane>& own = lanes_[std::this_thread::get_id()];
  if (!own) {
    select_device(device_);  // for this thread
    own = std::make_unique<Lane>();
  }
  return *own;
}

void CudaBackend::copy_between(std::byte* to, const std::byte* from, std::size_t bytes, bool accumulate) {
  if (bytes == 0) return;
  if (!on_device(to) && !on_device(from)) return Backend::copy_between(to, from, bytes, accumulate);
  Lane& own = lane();
  const auto move = [&](void* target, const std::byte* source, std::size_t count) {
    check(cudaMemcpyAsync(target, source, count, cudaMemcpyDefault, own.stream.get()), "copying between memories");
    own.done.record(own.stream.get());
    while (!own.done.done()) std::this_thread::sleep_for(kNap);
  };
  if (!accumulate) return move(to, from, bytes);
  if (on_device(to)) throw Failure("CUDA: a copy step that sums on the device");
  for (std::size_t at = 0; at < bytes; at += kMostStaging) {
    const std::size_t count = std::min(kMostStaging, bytes - at);
    if (own.staging.bytes() < count) own.staging = PinnedMemory(count);
    move(own.staging.data(), from + at, count);
    Backend::copy_between(to + at, own.staging.data(), count, true);
  }
}

namespace {

/// A copy in a queue.
class QueuedCopy final : public Request {
 public:
  QueuedCopy(std::shared_ptr<const Point> end, std::optional<std::pair<Mark, Mark>> marks)
      : end_(std::move(end)), marks_(marks) {}
  bool test() override { return end_->passed(); }
  [[nodiscard]] Points ends() const override { return {end_}; }
  [[nodiscard]] std::optional<std::pair<Mark, Mark>> marks() const override { return marks_; }

 private:
  std::shared_ptr<const Point> end_;
  std::optional<std::pair<Mark, Mark>> marks_;
};

}  // namespace

std::unique_ptr<Request> CudaBackend::queue_copy(std::size_t lane, std::byte* to, const std::byte* from,
                                                 std::size_t bytes, const Points& behind, bool marks) {
  std::unique_ptr<Stream>& own = copy_streams_[lane];
  if (!own) own = std::make_unique<Stream>();
  for (const auto& point : behind) wait_on(own->get(), *point);
  std::optional<std::pair<Mark, Mark>> marked;
  const Mark begun = marks ? mark_on(own->get()) : Mark{};
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, own->get()), "copying between memories");
  if (marks) marked = {begun, mark_on(own->get())};
  return std::make_unique<QueuedCopy>(point_on(own->get()), marked);
}

// A free piece of staging memory, for one copy. If none is free it makes another rather than wait, because a step's
// batches are queued far ahead of the device.
CudaBackend::Staging& CudaBackend::staging(std::size_t bytes) {
  const auto fits = [bytes](const auto& one) { return one->memory.bytes() >= bytes && one->done.done(); };
  const auto found = std::find_if(staging_.begin(), staging_.end(), fits);
  if (found != staging_.end()) return **found;
  const std::size_t wanted = std::max(bytes, kLeastStaging);
  if (staged_bytes_ + wanted > kMostStaging)
    while (!staging_.empty()) {  // page-locked memory is limited
      wait_for(staging_.back()->done);
      staged_bytes_ -= staging_.back()->memory.bytes();
      staging_.pop_back();
    }
  auto made = std::make_unique<Staging>();
  made->memory = PinnedMemory(wanted);
  staged_bytes_ += wanted;
  staging_.push_back(std::move(made));
  return *staging_.back();
}

void CudaBackend::copy_to_device(std::byte* device, std::span<const std::byte> host) {
  release();
  if (!on_device(device)) {  // the host's part of the plan, or a file's
    if (!host.empty()) std::memcpy(device, host.data(), host.size());
    return;
  }
  if (capturing_) throw Failure("CUDA: the host's bytes cannot be part of a graph");
  while (!host.empty()) {
    const auto piece = host.first(std::min(host.size(), kMostStaging));
    Staging& from = staging(piece.size());
    std::memcpy(from.memory.data(), piece.data(), piece.size());
    check(cudaMemcpyAsync(device, from.memory.data(), piece.size(), cudaMemcpyHostToDevice, stream_.get()),
          "copying to the device");
    from.done.record(stream_.get());
    device += piece.size();
    host = host.subspan(piece.size());
  }
}

std::span<std::byte> CudaBackend::allocate_slot(std::size_t bytes) {
  if (capturing_) throw Failure("CUDA: memory of the host's cannot be taken within a graph");
  slots_.emplace_back(std::max<std::size_t>(bytes, 1));
  return {slots_.back().data(), bytes};
}

void CudaBackend::queue_to_device(std::byte* device, std::span<const std::byte> slot) {
  release();
  if (slot.empty()) return;
  ENSURE(on_device(device), "a slot is copied to the device alone");
  check(cudaMemcpyAsync(device, slot.data(), slot.size(), cudaMemcpyHostToDevice, stream_.get()),
        "copying to the device");
}

void CudaBackend::copy_to_host(std::span<std::byte> host, const std::byte* device) {
  if (host.empty()) return;
  if (!on_device(device)) {
    std::memcpy(host.data(), device, host.size());
    return;
  }
  synchronise();  // first, because it notices a lost peer, which a copy does not
  check(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_.get()),
        "copying to the host");
  check(cudaStreamSynchronize(stream_.get()), "copying to the host");
}

void CudaBackend::read_later(std::size_t slot, const std::byte* device, std::size_t floats) {
  release();
  ENSURE(slot < kLater && floats <= kLaterFloats, "{} floats in slot {}", floats, slot);
  std::byte* const to = later_.data() + slot * kLaterFloats * sizeof(float);
  if (!on_device(device)) {
    std::memcpy(to, device, floats * sizeof(float));
    return;
  }
  check(cudaMemcpyAsync(to, device, floats * sizeof(float), cudaMemcpyDeviceToHost, stream_.get()),
        "copying to the host");
}

std::span<const float> CudaBackend::later(std::size_t slot) const {
  return {reinterpret_cast<const float*>(later_.data()) + slot * kLaterFloats, kLaterFloats};
}

void CudaBackend::wait_for(const Event& event) const {
  if (!event.done()) ++host_waits_;
  for (int spins = 0; !event.done(); ++spins) {
    if (spins < kSpins) continue;
    if (watch_) watch_();
    std::this_thread::sleep_for(kNap);
  }
}

void CudaBackend::synchronise() {
  release();
  if (capturing_) throw Failure("CUDA: the host waits within a graph");
  read_expert_faults();
  reached_.record(stream_.get());
  wait_for(reached_);
  if (watch_) watch_();  // operations that were aborted end too, with whatever they had
  throw_expert_faults();
}

// -- graphs
// Relaxed, because other threads continue meanwhile: they copy, NCCL starts operations, the watchdog looks.
void CudaBackend::begin_capture() {
  release();
  check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed), "beginning a graph");
  capturing_ = true;
}

std::unique_ptr<Backend::Graph> CudaBackend::end_capture() {
  release();
  cudaGraph_t graph = nullptr;
  capturing_ = false;
  check(cudaStreamEndCapture(stream_.get(), &graph), "ending a graph");
  std::unique_ptr<Backend::Graph> made;
  try {
    made = graphs_->made_of(graph);
  } catch (...) {
    cudaGraphDestroy(graph);
    throw;
  }
  cudaGraphDestroy(graph);
  return made;
}

void CudaBackend::abandon_capture() noexcept {
  held_.reset();
  if (std::exchange(capturing_, false)) {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_.get(), &graph) == cudaSuccess && graph) cudaGraphDestroy(graph);
  }
  static_cast<void>(cudaGetLastError());  // already reported
}

void CudaBackend::replay(Graph& graph) {
  release();
  graphs_->launch(graph, stream_.get());
}

Backend::Mark CudaBackend::mark_on(cudaStream_t stream) {
  if (capturing_) {
    graph_marks_.emplace_back(true);
    graph_marks_.back().record_in_graph(stream);
    return -static_cast<Mark>(graph_marks_.size());
  }
  const auto slot = static_cast<std::size_t>(next_mark_ % kMarks);
  if (slot == marks_.size()) marks_.emplace_back(true);
  marks_[slot].record(stream);
  return next_mark_++;
}

Backend::Mark CudaBackend::mark() {
  release();
  return mark_on(stream_.get());
}

std::shared_ptr<const Point> CudaBackend::point() {
  release();
  return point_on(stream_.get());
}

void CudaBackend::order_behind(const Point& point) {
  release();
  wait_on(stream_.get(), point);
}

const Event& CudaBackend::event_of(Mark mark) const {
  if (mark < 0) return graph_marks_.at(static_cast<std::size_t>(-1 - mark));
  ENSURE(mark < next_mark_ && mark >= next_mark_ - kMarks, "mark {} of {}", mark, next_mark_);
  return marks_[static_cast<std::size_t>(mark % kMarks)];
}

double CudaBackend::seconds_between(Mark from, Mark to) {
  const Event& first = event_of(from);
  const Event& last = event_of(to);
  wait_for(first);
  wait_for(last);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, first.get(), last.get()), "reading two marks");
  return static_cast<double>(milliseconds) * 1e-3;
}

std::int64_t CudaBackend::outside_arena_bytes() const {
  return products_.workspace_bytes() + ranges_.bytes() + layouts_.bytes() +
         static_cast<std::int64_t>(books_.bytes() + step_values_.bytes() + counter_.bytes() + bias_sums_.bytes() +
                                   expert_faults_.bytes()) +
         (cudnn_ ? cudnn_->workspace_bytes() : 0);
}

std::vector<KernelChoice> CudaBackend::kernel_choices() const {
  std::vector<KernelChoice> all(kernels_.begin(), kernels_.end());
  all.insert(all.end(), epilogues_.choices().begin(), epilogues_.choices().end());
  return all;
}

Product product_of(const Call& call) {
  const models::Op& op = call.op;
  Product p;
  const Operand& a = call.checked(true, 0, op.m * op.k);
  const Operand& b = call.checked(true, 1, op.k * op.n);
  const Operand& c = call.checked(false, 0, op.m * op.n);
  const bool types = a.dtype == b.dtype && (c.dtype == a.dtype || c.dtype == models::DType::fp32);
  if (!types)
    throw Failure(fmt::format("the CUDA backend has no product of {} and {} into {}", models::name_of(a.dtype),
                              models::name_of(b.dtype), models::name_of(c.dtype)));
  p.shape = {op.m, op.n, op.k, op.trans_a, op.trans_b, op.accumulate, op.rounded, a.dtype, c.dtype};
  p.a = a.data;
  p.b = b.data;
  p.c = c.data;
  if (Call::has(call.in, 2)) p.bias = call.checked(true, 2, op.n).data;
  p.scale = static_cast<float>(op.scale);
  return p;
}

namespace {

/// Rounds an fp8 product's operands into the room that the call provides, and makes the product read them there.
void round_into_room(const Call& call, Product& p) {
  const models::Op& op = call.op;
  ENSURE(models::fits_fp8(op.m, op.n, op.k), "an fp8 product of {} x {} x {}", op.m, op.n, op.k);
  if (p.shape.in != models::DType::bf16)
    throw Failure(fmt::format("the CUDA backend rounds bf16 to fp8, not {}", models::name_of(p.shape.in)));
  const models::Fp8Casts casts(op.m, op.n, op.k);
  std::byte* const room = call.checked(false, 1, casts.bytes).data;
  const models::Fp8 first = models::first_format(op);
  round_operands(call.stream, {call.input<__nv_bfloat16>(0, op.m * op.k), op.m, op.trans_a, first},
                 {call.input<__nv_bfloat16>(1, op.k * op.n), op.n, !op.trans_b, models::Fp8::e4m3}, op.k, room);
  p.shape.in = models::DType::fp8;
  p.shape.trans_a = false;
  p.shape.trans_b = true;
  p.shape.tf32 = false;
  p.shape.gradient = first == models::Fp8::e5m2;
  p.a = room + casts.a;
  p.b = room + casts.b;
  p.descales = reinterpret_cast<const float*>(room + models::Fp8Casts::kDescales);
}

}  // namespace

void CudaBackend::matmul(const Call& call) {
  const models::Op& op = call.op;
  if (op.m == 0 || op.n == 0 || run_mixed_product(call)) return;
  Product product = product_of(call);
  const void* const bias = product.bias;
  const models::DType stored = product.shape.in;  // the type of a bias, and of a result in the operands' type
  if (models::is_fp8_product(op)) {
    if (const std::string why = refusal(models::DType::fp8); !why.empty()) throw Failure(why);
    round_into_room(call, product);
  }
  product.bias = nullptr;
  const auto apart = [&] {
    static_cast<void>(products_.run(product, stream_.get()));
    if (!bias) return;
    by_type(call.in[2].dtype, "matmul", [&]<class B>(std::type_identity<B>) {
      const B* const from = call.input<B>(2, op.n);
      if (product.shape.out == models::DType::fp32)
        add_bias_to_rows(stream_.get(), from, call.output<float>(0, op.m * op.n), op.m, op.n);
      else
        add_bias_to_rows(stream_.get(), from, call.output<B>(0, op.m * op.n), op.m, op.n);
    });
  };
  if (!bias || call.in[2].dtype != stored || product.shape.out != stored || op.accumulate) return apart();
  Product one = product;
  one.bias = bias;
  one.shape.epilogue = Epilogue::bias;
  one_or_apart(one, call.context, {[&] { return products_.run(one, stream_.get()); }, apart});
}

}  // namespace orrery::exec::cuda
