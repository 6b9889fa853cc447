#pragma once
/// manifest.json of a checkpoint: which run and step it is of, which files it has, and where each part of a logical
/// tensor is. Its last line has the checksum of the manifest itself:
///
///   "checksum": "crc32:9ae0daaf"
///
/// over all bytes of the file, with these eight digits taken as zeros. Format 1.0, from before there was a checksum, is
/// still read: its files are checked against all it says, and the folder's name against `step`; `sequences` cannot be
/// checked.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/data/mark.h"
#include "exec/failure.h"
#include "exec/state/checkpoint_parts.h"

namespace orrery::exec {

/// What is on the disk is not what was saved; another generation may be whole.
class DamagedCheckpoint : public Failure {
 public:
  explicit DamagedCheckpoint(const std::string& what) : Failure(what) {}
};

struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;
  std::int64_t header_bytes = 0;  ///< length field and header of the safetensors file; 0 in format 1.0
  std::uint32_t header_crc = 0;
};

struct Manifest {
  std::int64_t step = 0;
  std::optional<std::int64_t> sequences;  ///< that the run has read; none: not recorded, in older files
  std::string optimizer;
  std::string run_id;            ///< the run that saved it
  std::string job;               ///< checksum of that run's plan, which its shards name too
  std::optional<DataMark> data;  ///< what the run had read
  bool sealed = false;           ///< it has a checksum of its own, which is right
  std::vector<CheckpointFile> files;
  std::vector<CheckpointPart> parts;
};

/// One rank's contribution; and the whole, from `head` (without files and parts) and all ranks' contributions.
[[nodiscard]] std::string write_share(const CheckpointFile& file, const std::vector<CheckpointPart>& parts);
[[nodiscard]] std::string join_shares(const Manifest& head, const std::vector<std::string>& shares);
/// Appends a checksum as the last line of `text`, an object without one.
[[nodiscard]] std::string seal_manifest(std::string text);
/// Throws DamagedCheckpoint naming `name` if the text is not a manifest, or its checksum is wrong.
[[nodiscard]] Manifest parse_manifest(const std::string& text, const std::string& name);

}  // namespace orrery::exec
