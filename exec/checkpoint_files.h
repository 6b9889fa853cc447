#pragma once
/// A checkpoint folder opened for reading: its manifest, whether its files are whole, and logical tensors from parts.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/checkpoint_parts.h"
#include "exec/safetensors.h"

namespace orrery::exec {

class CheckpointReader {
 public:
  /// Throws Failure when there is no manifest or it contradicts itself.
  explicit CheckpointReader(std::filesystem::path folder);
  [[nodiscard]] std::int64_t step() const { return manifest_.step; }
  /// Sequences that the run had read; -1: it does not say.
  [[nodiscard]] std::int64_t sequences() const { return manifest_.sequences; }
  /// Which one's states it has: plan::name_of(OptimizerKind).
  [[nodiscard]] const std::string& optimizer() const { return manifest_.optimizer; }
  /// Lengths and checksums of every `ways`-th file from `first` on. Throws Failure naming the file that is damaged.
  void check_files(int first = 0, int ways = 1) const;
  /// The parts of a logical tensor; none where the checkpoint has nothing of it. `version`: of what is stashed.
  [[nodiscard]] const std::vector<const CheckpointPart*>& parts(State state, const std::string& tensor,
                                                                int version = 0) const;
  /// How many versions of a weight are stashed.
  [[nodiscard]] int versions(const std::string& tensor) const;
  /// Elements of a part, from its own first on. Throws Failure when the file has not what the manifest says.
  void read(const CheckpointPart& part, std::int64_t first, std::span<float> out) const;
  /// A whole logical tensor. Throws Failure when it has another shape or an element is missing.
  [[nodiscard]] std::vector<float> tensor(State state, const std::string& name,
                                          const std::vector<std::int64_t>& shape) const;

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::tuple<State, int, std::string>, std::vector<const CheckpointPart*>> index_;
  mutable std::map<std::string, SafetensorsFile> open_;
};

}  // namespace orrery::exec
