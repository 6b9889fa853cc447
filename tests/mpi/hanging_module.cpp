// In the place of the CUDA module: the CPU backend as the device, and a transport that loses its peer in the third
// training step and then does not end, as a communicator whose abort blocks. ORRERY_HANGING says who finds out: the
// rank itself, or a thread beside it while the rank waits.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "exec/engine/cuda_loader.h"

namespace orrery::exec {
namespace {

class HangingTransport final : public Transport {
 public:
  HangingTransport(Transport& host, CudaTransportOptions options) : host_(host), options_(std::move(options)) {}
  ~HangingTransport() override { block(); }

  [[nodiscard]] std::string name() const override { return "hanging"; }
  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  [[nodiscard]] GroupId make_group(const plan::Group& group) override { return host_.make_group(group); }
  [[nodiscard]] std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype,
                                                    std::byte* data, std::int64_t elements) override {
    return host_.all_reduce(group, reduce, dtype, data, elements);
  }
  [[nodiscard]] std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source,
                                                    std::byte* target, std::int64_t elements) override {
    return host_.all_gather(group, dtype, source, target, elements);
  }
  /// One a training step, in the plan of the test.
  [[nodiscard]] std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                                        std::byte* target, std::int64_t elements) override {
    if (++scatters_ == 3 && rank() == 0) lose_a_peer();
    return host_.reduce_scatter(group, dtype, source, target, elements);
  }
  [[nodiscard]] std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                              std::int64_t elements) override {
    return host_.send(to, tag, dtype, data, elements);
  }
  [[nodiscard]] std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                                 std::int64_t elements) override {
    return host_.receive(from, tag, dtype, data, elements);
  }
  void barrier() override { host_.barrier(); }
  [[nodiscard]] std::vector<std::string> gather_text(const std::string& text) override {
    return host_.gather_text(text);
  }
  [[nodiscard]] double maximum(double value) override { return host_.maximum(value); }

 private:
  [[noreturn]] static void block() {
    for (;;) pause();
  }
  [[noreturn]] void lose_a_peer() {
    const std::string why = "NCCL: reduce-scatter: rank 1 is gone";
    if (std::string(std::getenv("ORRERY_HANGING")) == "rank") throw Failure(why);
    std::thread([this, why] { options_.on_failure(why); }).detach();
    block();
  }
  Transport& host_;
  CudaTransportOptions options_;
  int scatters_ = 0;
};

class HangingModule final : public CudaModule {
 public:
  [[nodiscard]] int devices() const override { return 2; }
  [[nodiscard]] std::string device_name(int device) const override { return "hanging " + std::to_string(device); }
  [[nodiscard]] std::string versions() const override { return "hanging"; }
  [[nodiscard]] std::unique_ptr<Backend> make_backend(int /*device*/, std::unique_ptr<Backend> host,
                                                      const CudaBackendOptions& /*options*/) const override {
    return host;
  }
  [[nodiscard]] std::unique_ptr<Transport> make_transport(Backend& /*backend*/, Transport& host,
                                                          const CudaTransportOptions& options) const override {
    return std::make_unique<HangingTransport>(host, options);
  }
};

}  // namespace
}  // namespace orrery::exec

extern "C" __attribute__((visibility("default"))) orrery::exec::CudaModule* orrery_cuda_open(int /*version*/,
                                                                                             char* /*reason*/,
                                                                                             std::size_t /*bytes*/) {
  return new orrery::exec::HangingModule();
}
