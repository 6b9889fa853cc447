#pragma once
/// manifest.json of a checkpoint: what it is of, which files it has, which part of which logical tensor stands where.
/// Its last line has the checksum of the manifest itself:
///
///   "checksum": "crc32:9ae0daaf"
///
/// of all bytes of the file, these eight digits taken as zeros. Format 1.0, from before there was one, is still read:
/// all that it says of its files is held against them, `step` against the folder's name; `sequences` cannot be.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/data/mark.h"
#include "exec/failure.h"
#include "exec/state/checkpoint_parts.h"

namespace orrery::exec {

/// What is on the disk is not what was saved: another generation may be whole.
class DamagedCheckpoint : public Failure {
 public:
  explicit DamagedCheckpoint(const std::string& what) : Failure(what) {}
};

struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;
  std::int64_t header_bytes = 0;  ///< length and header of the safetensors file; 0 in format 1.0
  std::uint32_t header_crc = 0;
};

struct Manifest {
  std::int64_t step = 0;
  std::int64_t sequences = -1;  ///< of the data that the run has read; -1: of files from before there was a cursor
  std::string optimizer;
  std::string run_id;            ///< of the run that saved it
  std::string job;               ///< checksum of that run's plan, which its shards name too
  std::optional<DataMark> data;  ///< what it had read
  bool sealed = false;           ///< it has a checksum of its own, which is right
  std::vector<CheckpointFile> files;
  std::vector<CheckpointPart> parts;
};

/// One rank's contribution, and the whole of `head` (files and parts left out) and all ranks' contributions.
[[nodiscard]] std::string write_share(const CheckpointFile& file, const std::vector<CheckpointPart>& parts);
[[nodiscard]] std::string join_shares(const Manifest& head, const std::vector<std::string>& shares);
/// The text with a checksum as its last line; `text` is an object without one.
[[nodiscard]] std::string seal_manifest(std::string text);
/// Throws DamagedCheckpoint naming `name` when the text is not a manifest, or its checksum is not its own.
[[nodiscard]] Manifest parse_manifest(const std::string& text, const std::string& name);

}  // namespace orrery::exec
