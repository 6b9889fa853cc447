// Writes the manifest's text, and reads it strictly.
#include "exec/state/checkpoint_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/json.h"
#include "exec/files/checksum.h"

namespace orrery::exec {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "1.1", kUnsealedFormat = "1.0";
constexpr std::string_view kBeforeDigits = "\n \"checksum\": \"crc32:", kDigits = "00000000", kAfterDigits = "\"\n}\n";
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostCrc = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
constexpr std::size_t kMostDimensions = 8;

ordered_json part_json(const CheckpointPart& part) {
  ordered_json json = {{"file", part.file},
                       {"key", part.key},
                       {"state", name_of(part.state)},
                       {"tensor", part.tensor.name},
                       {"logical_shape", part.tensor.logical_shape},
                       {"part_shape", part.tensor.shape},
                       {"split_axis", part.tensor.split_axis},
                       {"split_index", part.tensor_rank},
                       {"begin", part.begin},
                       {"end", part.end}};
  if (has_versions(part.state)) json["version"] = part.version;
  json["crc32"] = part.crc;
  return json;
}

std::uint32_t seal_of(std::string_view before, std::string_view after) {
  std::uint32_t crc = crc32(std::as_bytes(std::span(before)));
  crc = crc32(std::as_bytes(std::span(kDigits)), crc);
  return crc32(std::as_bytes(std::span(after)), crc);
}

/// Reads objects, and notes which keys they have.
class Keys {
 public:
  explicit Keys(base::JsonReader& reader) : reader_(reader) { reader_.open_object(); }
  [[nodiscard]] bool next(std::string& key) {
    if (!reader_.key(key)) return false;
    seen_.insert(key);
    return true;
  }
  [[nodiscard]] bool has(const char* key) const { return seen_.count(key) > 0; }
  void need(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (!has(key)) reader_.error(fmt::format("key \"{}\" is missing", key));
  }

 private:
  base::JsonReader& reader_;
  std::set<std::string, std::less<>> seen_;
};

std::vector<std::int64_t> read_shape(base::JsonReader& reader) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  reader.open_array();
  while (reader.item()) {
    shape.push_back(reader.integer(1, kMost));
    if (shape.size() > kMostDimensions || __builtin_mul_overflow(elements, shape.back(), &elements))
      reader.error("an impossible shape");
  }
  if (shape.empty()) reader.error("an impossible shape");
  return shape;
}

State read_state(base::JsonReader& reader) {
  const std::string text = reader.text();
  for (const State one : {State::weight, State::first_moment, State::second_moment, State::stashed, State::factor_sum,
                          State::factor_rows, State::factor_columns, State::scaling, State::error, State::low_rank_q})
    if (text == name_of(one)) return one;
  reader.error(fmt::format("state \"{}\" is unknown to this program", text));
  return {};
}

/// The name of a file in this folder, without any path.
std::string read_name(base::JsonReader& reader) {
  std::string name = reader.text();
  const bool plain = !name.empty() && name.front() != '.' && name.size() < 256 &&
                     std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c != '/' && c != 0x7f; });
  if (!plain) reader.error("this is not the name of a file beside the manifest");
  return name;
}

/// Whether a part fits into the tensor that it names.
bool consistent(const CheckpointPart& part) {
  const std::vector<std::int64_t>&shape = part.tensor.shape, &whole = part.tensor.logical_shape;
  if (shape.size() != whole.size() || part.begin < 0 || part.end <= part.begin) return false;
  if (part.tensor.split_axis >= static_cast<int>(shape.size())) return false;
  const auto axis = static_cast<std::size_t>(std::max(part.tensor.split_axis, 0));  // the axis that is cut or padded
  std::int64_t elements = 1, end = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    elements *= shape[i];
    if (i != axis && shape[i] != whole[i]) return false;
  }
  return part.end <= elements && !__builtin_mul_overflow(shape[axis], part.tensor_rank + 1, &end);
}

CheckpointPart read_part(base::JsonReader& reader) {
  CheckpointPart part;
  Keys keys(reader);
  for (std::string key; keys.next(key);) {
    if (key == "file")
      part.file = read_name(reader);
    else if (key == "key")
      part.key = reader.text();
    else if (key == "state")
      part.state = read_state(reader);
    else if (key == "version")
      part.version = static_cast<int>(reader.integer(0, kMostRanks));
    else if (key == "tensor")
      part.tensor.name = reader.text();
    else if (key == "logical_shape")
      part.tensor.logical_shape = read_shape(reader);
    else if (key == "part_shape")
      part.tensor.shape = read_shape(reader);
    else if (key == "split_axis")
      part.tensor.split_axis = static_cast<int>(reader.integer(-1, kMostDimensions));
    else if (key == "split_index")
      part.tensor_rank = static_cast<int>(reader.integer(0, kMostRanks));
    else if (key == "begin")
      part.begin = reader.integer(0, kMost);
    else if (key == "end")
      part.end = reader.integer(1, kMost);
    else if (key == "crc32")
      part.crc = static_cast<std::uint32_t>(reader.integer(0, kMostCrc));
    else
      reader.error(fmt::format("key \"{}\" is unknown to this program", key));
  }
  keys.need(
      {"file", "key", "state", "tensor", "logical_shape", "part_shape", "split_axis", "split_index", "begin", "end"});
  if (has_versions(part.state)) keys.need({"version"});
  if (!reader.failed() && !consistent(part)) reader.error(fmt::format("part {} contradicts itself", part.key));
  return part;
}

CheckpointFile read_file_entry(base::JsonReader& reader) {
  CheckpointFile file;
  Keys keys(reader);
  for (std::string key; keys.next(key);) {
    if (key == "name")
      file.name = read_name(reader);
    else if (key == "bytes")
      file.bytes = reader.integer(0, kMost);
    else if (key == "crc32")
      file.crc = static_cast<std::uint32_t>(reader.integer(0, kMostCrc));
    else if (key == "header_bytes")
      file.header_bytes = reader.integer(1, kMost);
    else if (key == "header_crc32")
      file.header_crc = static_cast<std::uint32_t>(reader.integer(0, kMostCrc));
    else
      reader.error(fmt::format("key \"{}\" is unknown to this program", key));
  }
  keys.need({"name", "bytes", "crc32"});
  return file;
}

DataMark read_data(base::JsonReader& reader) {
  DataMark data;
  Keys keys(reader);
  for (std::string key; keys.next(key);) {
    if (key == "tokens") {
      data.size = reader.integer(0, kMost);
    } else if (key == "format") {
      const std::string word = reader.text();
      if (const auto format = data_format(word))
        data.format = *format;
      else
        reader.error(fmt::format("data of format \"{}\" is unknown to this program", word));
    } else if (key == "sampled_crc32") {
      data.sampled_crc = static_cast<std::uint32_t>(reader.integer(0, kMostCrc));
    } else {
      reader.error(fmt::format("key \"{}\" is unknown to this program", key));
    }
  }
  keys.need({"tokens", "format", "sampled_crc32"});
  return data;
}

Manifest read_manifest(base::JsonReader& reader, bool sealed) {
  Manifest manifest;
  manifest.optimizer = "adamw";  // files from before there were other optimizers
  manifest.sealed = sealed;
  Keys keys(reader);
  std::string format;
  for (std::string key; keys.next(key);) {
    if (key == "format_version") {
      format = reader.text();
      if (format != (sealed ? kFormat : kUnsealedFormat))
        reader.error(fmt::format("format_version \"{}\", this program reads {} {} a checksum at its end", format,
                                 sealed ? kFormat : kUnsealedFormat, sealed ? "with" : "without"));
    } else if (key == "step")
      manifest.step = reader.integer(0, kMost);
    else if (key == "sequences") {
      const std::int64_t sequences = reader.integer(-1, kMost);
      if (sequences >= 0) manifest.sequences = sequences;
    } else if (key == "optimizer")
      manifest.optimizer = reader.text();
    else if (key == "run_id" && sealed)
      manifest.run_id = reader.text();
    else if (key == "job" && sealed)
      manifest.job = reader.text();
    else if (key == "data" && sealed)
      manifest.data = read_data(reader);
    else if (key == "files") {
      reader.open_array();
      while (reader.item()) manifest.files.push_back(read_file_entry(reader));
    } else if (key == "parts") {
      reader.open_array();
      while (reader.item()) manifest.parts.push_back(read_part(reader));
    } else if (key == "checksum" && sealed)
      (void)reader.text();
    else
      reader.error(fmt::format("key \"{}\" is unknown to this program", key));
  }
  keys.need({"format_version", "step", "files", "parts"});
  if (sealed) keys.need({"sequences", "optimizer", "checksum"});
  reader.finish();
  return manifest;
}

/// Refuses lists of files and parts that contradict each other.
void check_lists(const Manifest& manifest, const std::string& name) {
  std::set<std::string> listed, used;
  for (const CheckpointFile& file : manifest.files) {
    if (!listed.insert(file.name).second)
      throw DamagedCheckpoint(fmt::format("{}: {} is listed twice", name, file.name));
    if (manifest.sealed && (file.header_bytes <= 0 || file.header_bytes > file.bytes))
      throw DamagedCheckpoint(fmt::format("{}: the header of {} is not within it", name, file.name));
  }
  for (const CheckpointPart& part : manifest.parts) {
    if (listed.count(part.file) == 0)
      throw DamagedCheckpoint(fmt::format("{}: {} has a part and is not listed", name, part.file));
    used.insert(part.file);
  }
  for (const std::string& file : listed)
    if (used.count(file) == 0) throw DamagedCheckpoint(fmt::format("{}: {} is listed and has no part", name, file));
  if (manifest.parts.empty()) throw DamagedCheckpoint(name + ": it lists nothing");
}

/// Whether the text ends in a checksum. Throws if the checksum is wrong.
bool check_seal(const std::string& text, const std::string& name) {
  const std::size_t tail = kBeforeDigits.size() + kDigits.size() + kAfterDigits.size();
  const std::string_view all = text;
  if (all.size() < tail || all.substr(all.size() - tail, kBeforeDigits.size()) != kBeforeDigits ||
      all.substr(all.size() - kAfterDigits.size()) != kAfterDigits)
    return false;
  const std::size_t digits = all.size() - kAfterDigits.size() - kDigits.size();
  const std::string own = fmt::format("{:08x}", seal_of(all.substr(0, digits), kAfterDigits));
  if (all.substr(digits, kDigits.size()) != own)
    throw DamagedCheckpoint(fmt::format("{}: damaged in bytes 0 to {}: its checksum is crc32:{}, its last line says {}",
                                        name, all.size() - 1, own, all.substr(digits, kDigits.size())));
  return true;
}

}  // namespace

std::string write_share(const CheckpointFile& file, const std::vector<CheckpointPart>& parts) {
  ordered_json share;
  share["file"] = {{"name", file.name},
                   {"bytes", file.bytes},
                   {"crc32", file.crc},
                   {"header_bytes", file.header_bytes},
                   {"header_crc32", file.header_crc}};
  share["parts"] = ordered_json::array();
  for (const CheckpointPart& part : parts) share["parts"].push_back(part_json(part));
  return share.dump();
}

std::string join_shares(const Manifest& head, const std::vector<std::string>& shares) {
  ordered_json manifest;
  manifest["format_version"] = kFormat;
  manifest["run_id"] = head.run_id;
  manifest["job"] = head.job;
  manifest["step"] = head.step;
  manifest["sequences"] = head.sequences.value_or(-1);
  manifest["optimizer"] = head.optimizer;
  if (head.data)
    manifest["data"] = {{"tokens", head.data->size},
                        {"format", traits_of(head.data->format).word},
                        {"sampled_crc32", head.data->sampled_crc}};
  manifest["files"] = ordered_json::array();
  manifest["parts"] = ordered_json::array();
  for (const std::string& text : shares) {
    const ordered_json share = ordered_json::parse(text);  // just written by this program
    if (share["parts"].empty()) continue;
    manifest["files"].push_back(share["file"]);
    for (const ordered_json& part : share["parts"]) manifest["parts"].push_back(part);
  }
  return seal_manifest(manifest.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

std::string seal_manifest(std::string text) {
  text.resize(text.size() - 3);  // "\n}\n"
  text += ',';
  text += kBeforeDigits;
  return text + fmt::format("{:08x}", seal_of(text, kAfterDigits)) + std::string(kAfterDigits);
}

Manifest parse_manifest(const std::string& text, const std::string& name) {
  const bool sealed = check_seal(text, name);
  base::JsonReader reader(text, name);
  Manifest manifest = read_manifest(reader, sealed);
  if (reader.failed()) {
    const base::Diagnostic& first = reader.errors().front();
    throw DamagedCheckpoint(fmt::format("{}:{}:{}: not a checkpoint manifest: {}", name, first.where.line,
                                        first.where.column, first.message));
  }
  check_lists(manifest, name);
  return manifest;
}

}  // namespace orrery::exec
