#pragma once
/// A checkpoint folder opened for reading: its manifest, the check that its files are whole, and logical tensors from
/// parts.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/files/safetensors.h"
#include "exec/state/checkpoint_manifest.h"

namespace orrery::exec {

class CheckpointReader {
 public:
  /// Throws DamagedCheckpoint if the manifest cannot be read, was changed, contradicts itself, or is of another step
  /// than the folder's name says.
  explicit CheckpointReader(std::filesystem::path folder);
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] std::int64_t step() const { return manifest_.step; }
  /// Sequences that the run had read; none: unknown.
  [[nodiscard]] std::optional<std::int64_t> sequences() const { return manifest_.sequences; }
  /// The optimizer whose states it has: plan::name_of(OptimizerKind).
  [[nodiscard]] const std::string& optimizer() const { return manifest_.optimizer; }
  /// Checks every `ways`-th file from `first` on against the manifest: its length, its header's step, run, tensors and
  /// shapes, and its checksums; with `first` 0 also that the parts cover each logical tensor exactly once. Throws
  /// DamagedCheckpoint, which names the file, and the damaged bytes and tensor.
  void check_files(int first = 0, int ways = 1) const;
  /// The parts of a logical tensor; none if the checkpoint has nothing of it. `version`: for stashed states.
  [[nodiscard]] const std::vector<const CheckpointPart*>& parts(State state, const std::string& tensor,
                                                                int version = 0) const;
  /// How many versions of a weight are stashed.
  [[nodiscard]] int versions(const std::string& tensor) const;
  /// Elements of a part, counted from its own `first`. Throws Failure if the file does not have what the manifest says.
  void read(const CheckpointPart& part, std::int64_t first, std::span<float> out) const;
  /// A whole logical tensor. Throws Failure if it has another shape or lacks an element.
  [[nodiscard]] std::vector<float> tensor(State state, const std::string& name,
                                          const std::vector<std::int64_t>& shape) const;

 private:
  void check_file(const CheckpointFile& file) const;
  void check_header(const CheckpointFile& file, const SafetensorsFile& opened,
                    const std::vector<const CheckpointPart*>& parts) const;
  [[nodiscard]] std::string whose(const CheckpointFile& file, const SafetensorsHeader& header) const;
  void check_coverage() const;
  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::tuple<State, int, std::string>, std::vector<const CheckpointPart*>> index_;
  std::map<std::string, std::vector<const CheckpointPart*>> by_file_;  ///< in the file's order
  mutable std::map<std::string, SafetensorsFile> open_;
};

/// The step in a checkpoint folder's name: step-000020. Nothing for any other name.
[[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& checkpoint);

}  // namespace orrery::exec
