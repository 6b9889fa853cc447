#pragma once
/// Copies between a rank's memories within a pass: activations that wait on the host for backward, parameters that are
/// fetched for their layer, gradients that leave for a sum on the host. They are in the places where
/// plan/lower/offload.h puts them. Private to cost/estimate/.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost/estimate/pass_program.h"
#include "cost/estimate/pass_writer.h"

namespace orrery::cost {

class PassCopies {
 public:
  enum class Pass : std::uint8_t { forward, backward, weights };
  /// Which of a layer's segments run: the pass's own, or those that are recomputed before them.
  enum class Part : std::uint8_t { own, again };

  /// `layers`: the chunk's, in forward order.
  PassCopies(const PassSurroundings& around, const std::vector<const LayerCosts*>& layers, Pass pass, PassWriter& out);

  // Called in the order of the pass; `run`: the number of the layer in it.
  void begin();
  /// Before a compute segment; `first`: it is the layer's first.
  void before(std::size_t run, Part part, std::size_t segment, bool first);
  /// Before a segment that is a message.
  void before_message(std::size_t run, Part part, std::size_t segment);
  /// After a segment of a forward pass; `last`: it is the layer's last that computes.
  void behind(std::size_t run, std::size_t segment, bool last);
  void behind_layer(std::size_t run);

  /// ZeRO 3: the next message, which gathers a bucket of the layer, begins once its shard has arrived.
  void await_shard(std::size_t run);
  /// Whether gradients are summed on the host. add_on_host(): ZeRO 2 and 3 copy the layer's sums there, after message
  /// `reduced` of the data stream.
  [[nodiscard]] bool sums_on_host() const { return sums_on_host_; }
  void add_on_host(std::size_t run, std::int64_t elements, int reduced);

 private:
  struct Wait {
    std::size_t run = 0;
    Part part = Part::own;
    std::size_t segment = 0;
    plan::Stream stream{};
    int message = -1;
  };
  [[nodiscard]] const LayerCosts& layer(std::size_t run) const;
  [[nodiscard]] double copy(plan::Stream stream, double bytes, bool accumulate = false) const;
  /// The layer's saved tensors that leave for the host, in the order in which they are used again: so copies at one
  /// place leave and come back (plan/lower/offload.h).
  [[nodiscard]] std::vector<const Life*> saved(std::size_t run) const;
  void fetch(std::size_t run);
  void fetch_activations(std::size_t run);
  void fetch_parameters(std::size_t run);
  void fetch_shards(std::size_t run);
  int come(std::int64_t elements);
  void leave(std::size_t run, double seconds);
  void release(std::size_t run);
  void release_ahead(std::size_t run);

  const PassSurroundings& around_;
  const std::vector<const LayerCosts*>& layers_;
  Pass pass_;
  PassWriter& out_;
  bool any_, activations_, parameters_, sums_on_host_;
  std::size_t prefetch_;
  std::vector<bool> leaves_;  ///< by run: all its activations wait on the host
  std::vector<int> left_;     ///< by run: the last copy that takes its activations away; -1: none
  std::vector<Wait> waits_;
  std::vector<std::vector<int>> shards_;  ///< by run: messages that bring its shards
  std::optional<int> table_;              ///< the one that brings a tied table's
};

}  // namespace orrery::cost
