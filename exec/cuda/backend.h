#pragma once
/// The CUDA backend: one device, one arena, and one compute stream on which every operator is queued in program order.
/// Computes in fp32, bf16 or fp16 with sums in fp32; products also in tf32 and fp8. Matrix products use cuBLASLt,
/// everything else exec/cuda/kernels. What a plan keeps on the host is in pinned memory; another backend, the host's,
/// runs the steps on it.
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "exec/cuda/cudnn_attention.h"
#include "exec/cuda/epilogues.h"
#include "exec/cuda/fusion.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/kept_graphs.h"
#include "exec/cuda/kernels/updates.h"
#include "exec/cuda/products.h"
#include "exec/cuda/ranges.h"
#include "exec/cuda/table_layouts.h"
#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

struct Call;

class CudaBackend final : public Backend {
 public:
  /// `host` computes what plans leave to the host's cores; without it such plans are refused. `repeat`: as in
  /// CudaBackendOptions.
  explicit CudaBackend(int device, std::unique_ptr<Backend> host = nullptr, Products::Options products = {},
                       bool repeat = true);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] std::string device_name() const override { return device_name_; }
  [[nodiscard]] std::string refusal(models::DType precision) const override;
  [[nodiscard]] std::byte* allocate_arena(std::int64_t bytes) override;
  [[nodiscard]] std::byte* allocate_host(std::int64_t bytes) override;
  void copy_to_device(std::byte* device, std::span<const std::byte> host) override;
  void copy_to_host(std::span<std::byte> host, const std::byte* device) override;
  void run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
           std::span<const ElementRange> ranges, const StepContext& context) override;
  /// Runs neighbours that exec/cuda/fusion.h finds as one kernel. If the last operator may fuse with the start of the
  /// next step, it is held back until then, or until anything else is queued, marked or waited for.
  void run_all(std::span<const OpCall> calls, const StepContext& context) override;
  void copy_between(std::byte* to, const std::byte* from, std::size_t bytes, bool accumulate) override;
  void synchronise() override;
  [[nodiscard]] Mark mark() override;
  [[nodiscard]] double seconds_between(Mark from, Mark to) override;
  /// `run` only queues.
  [[nodiscard]] bool asynchronous() const override { return true; }
  [[nodiscard]] std::shared_ptr<const Point> point() override;
  void order_behind(const Point& point) override;
  void begin_step(const StepContext& context) override;
  void read_later(std::size_t slot, const std::byte* device, std::size_t floats) override;
  [[nodiscard]] std::span<const float> later(std::size_t slot) const override;
  [[nodiscard]] bool queues_copies() const override { return true; }
  [[nodiscard]] std::span<std::byte> allocate_slot(std::size_t bytes) override;
  void queue_to_device(std::byte* device, std::span<const std::byte> slot) override;
  [[nodiscard]] std::unique_ptr<Request> queue_copy(std::size_t lane, std::byte* to, const std::byte* from,
                                                    std::size_t bytes, const Points& behind, bool marks) override;
  [[nodiscard]] bool captures() const override { return true; }
  void begin_capture() override;
  [[nodiscard]] std::unique_ptr<Graph> end_capture() override;
  void abandon_capture() noexcept override;
  void replay(Graph& graph) override;
  [[nodiscard]] std::vector<KernelChoice> kernel_choices() const override;
  [[nodiscard]] std::int64_t scratch_bytes() const override { return outside_arena_bytes(); }

  // -- for the transport of the same module
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::shared_ptr<const Point> point_on(cudaStream_t stream) {
    return std::make_shared<StreamPoint>(events_, stream);
  }
  [[nodiscard]] Mark mark_on(cudaStream_t stream);
  [[nodiscard]] bool capturing() const { return capturing_; }
  /// Destroys all graphs and refuses new ones, because communicators end only when no graph holds them. Any thread may
  /// call it.
  void drop_graphs() noexcept { graphs_->drop(); }
  /// How often the host has waited for the device.
  [[nodiscard]] std::int64_t host_waits() const { return host_waits_; }
  /// Calls `watch` from time to time while the host waits for the device. It may throw (a peer has failed).
  void while_waiting(std::function<void()> watch) { watch_ = std::move(watch); }
  /// Device memory beside the arena: workspaces of products and of cuDNN's attention, tables of ranges.
  [[nodiscard]] std::int64_t outside_arena_bytes() const;

 private:
  /// The operator that is held back, without references to the caller's memory.
  struct Held {
    models::Op op;
    std::vector<Operand> in, out;
    StepContext context;
    [[nodiscard]] OpCall call() const { return {&op, in, out, {}}; }
  };
  void release();  ///< runs what is held back
  void run_now(const OpCall& one, const StepContext& context);
  void run_one(const OpCall& one, const StepContext& context, const OpCall* before);
  void matmul(const Call& call);
  /// Runs the product with or without its epilogue. A `rehearsal` is needed if running both ways for timing would
  /// change memory.
  void one_or_apart(const Product& product, const StepContext& context, const Ways& ways);
  void one_or_apart(const Product& product, const StepContext& context, const Ways& ways,
                    const std::function<Ways()>& rehearsal);
  void product_and_gelu(const Call& call, const OpCall& one, const OpCall& next);
  void product_and_bias_grad(const OpCall& sums, const OpCall& one, const StepContext& context);
  [[nodiscard]] bool attention_by_cudnn(const Call& call);
  void note_own_attention(const models::Op& op, const std::string& reason);
  void run_whole_loss(std::span<const OpCall> calls, const StepContext& context);
  void run_experts(const Call& call);
  void run_newton_schulz(const Call& call);
  /// Faults that kernels of experts cannot throw: they leave them on the device, and `synchronise` throws them.
  void read_expert_faults();
  void throw_expert_faults();
  void update(const Call& call, std::span<const ElementRange> ranges);
  void run_tables(const Call& call);       ///< rows of embedding tables
  void run_recommender(const Call& call);  ///< what uses their sums
  [[nodiscard]] const DeviceBook* code_books();
  /// Where kernels find the values that change from step to step. Written there first if necessary, in stream order.
  [[nodiscard]] const StepValues* step_values(const Call& call);
  void put_step_values(const StepValues& values);
  /// The operator's dropout masks, for the training step that has begun.
  [[nodiscard]] DropoutDraw dropout_draw(const models::Op& op, const StepContext& context);
  [[nodiscard]] const Event& event_of(Mark mark) const;
  void wait_for(const Event& event) const;
  [[nodiscard]] bool on_device(const std::byte* address) const;
  [[nodiscard]] bool on_host(std::span<const Operand> in, std::span<const Operand> out) const;
  [[nodiscard]] Backend& host_backend() const;

  /// What a thread copies with: a stream of its own, so that copies run beside computing and beside each other.
  struct Lane {
    Stream stream;
    Event done;
    PinnedMemory staging;  ///< for sums on the host
  };
  [[nodiscard]] Lane& lane();

  int device_;
  std::string device_name_;
  std::unique_ptr<Backend> host_;
  Stream stream_;
  std::vector<DeviceMemory> arenas_;  ///< training takes one, a probe one per workload
  std::vector<PinnedMemory> host_arenas_;
  Products products_;
  DeviceMemory bias_sums_;                 ///< of one micro-batch, written by an epilogue
  std::unique_ptr<CudnnAttention> cudnn_;  ///< null: our own kernels compute all attention
  std::string no_cudnn_;                   ///< the reason
  std::set<KernelChoice> kernels_;         ///< those used so far
  int capability_ = 0;                     ///< ten times the major number, plus the minor
  Epilogues epilogues_;
  RangeTables ranges_;
  TableLayouts layouts_;
  DeviceMemory books_;
  /// For copy_to_device; free again once its event is done.
  struct Staging {
    PinnedMemory memory;
    Event done;
  };
  [[nodiscard]] Staging& staging(std::size_t bytes);
  std::vector<std::unique_ptr<Staging>> staging_;
  std::size_t staged_bytes_ = 0;
  PinnedMemory later_{kLater * kLaterFloats * sizeof(float)};
  std::vector<PinnedMemory> slots_;
  DeviceMemory step_values_;
  DeviceMemory expert_faults_;  ///< of routers and slots; none before the first operator of a mixture
  PinnedMemory expert_faults_read_;
  DeviceMemory counter_;  ///< of blocks that have come to their end; 0 between kernels
  StepValues step_is_;
  bool step_known_ = false;
  bool capturing_ = false;
  std::shared_ptr<KeptGraphs> graphs_ = std::make_shared<KeptGraphs>();
  std::optional<Held> held_;
  mutable std::int64_t host_waits_ = 0;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  Event reached_;
  std::vector<Event> marks_;        ///< a ring: mark i is event i % kMarks
  std::vector<Event> graph_marks_;  ///< kept for graphs: mark -1 - i is event i
  Mark next_mark_ = 0;
  std::function<void()> watch_;
  std::mutex lanes_lock_;
  std::map<std::thread::id, std::unique_ptr<Lane>> lanes_;
  std::map<std::size_t, std::unique_ptr<Stream>> copy_streams_;
};

}  // namespace orrery::exec::cuda
