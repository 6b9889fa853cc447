#pragma once
/// Strict safetensors: u64 length, JSON header, raw little-endian data. The header is checked before anything is
/// allocated from it: no overlaps, no holes, no duplicate names, sizes that match the shapes and the file.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/files/files.h"

namespace orrery::exec {

struct TensorEntry {
  std::string name;
  std::string dtype = "F32";  ///< as written in the file: F32, F16, BF16, F64, I64 …
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  ///< bytes, from the start of the data
  [[nodiscard]] std::int64_t elements() const;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
  std::int64_t data_start = 0;  ///< bytes from the start of the file
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;
};

/// Limits: header 100 MiB (the format's own), 1,000,000 tensors, 8 dimensions.
/// `json` is the header's text; `data_bytes` is what follows it in the file.
[[nodiscard]] base::Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                                                       const std::string& file);

/// A file open for reading.
class SafetensorsFile {
 public:
  [[nodiscard]] static base::Result<SafetensorsFile> open(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Elements [first, first + out.size()) of a tensor, in C order, as fp32 (from F32, F16, BF16 or F64).
  /// Throws Failure if the file cannot be read or the dtype is none of these.
  void read(const TensorEntry& tensor, std::int64_t first, std::span<float> out) const;

 private:
  SafetensorsFile() = default;
  int file_ = -1;
  std::string name_;
  SafetensorsHeader header_;
};

/// Writes a new file: first the header, then the tensors' data in the order of `tensors`. Throws Failure on I/O errors.
/// An unfinished file is removed again.
class SafetensorsWriter {
 public:
  /// Sets begin and end of each tensor. Tensors must be F32.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata);
  void append(std::span<const float> values);
  /// Checks that everything was written, syncs to the disk and closes. Returns the CRC-32 of the whole file.
  [[nodiscard]] std::uint32_t finish();
  [[nodiscard]] std::int64_t bytes() const { return file_->written(); }
  /// Of the file's beginning: the length and the header together.
  [[nodiscard]] std::int64_t header_bytes() const { return header_bytes_; }
  [[nodiscard]] std::uint32_t header_crc() const { return header_crc_; }
  /// Of each tensor's data, in order.
  [[nodiscard]] const std::vector<std::uint32_t>& tensor_crcs() const { return crcs_; }

 private:
  std::string name_;
  std::vector<TensorEntry> tensors_;
  std::vector<std::uint32_t> crcs_;
  std::optional<NewFile> file_;
  std::int64_t header_bytes_ = 0, expected_ = 0;
  std::uint32_t header_crc_ = 0;
  std::size_t tensor_ = 0, begun_ = 0;  ///< the tensor being written, and how many of its bytes have been
};

}  // namespace orrery::exec
