// Reads and writes safetensors files.
#include "exec/files/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ensure.h"
#include "exec/failure.h"
#include "exec/files/checksum.h"

namespace orrery::exec {
namespace {

constexpr const char* kCode = "E0601";
constexpr std::int64_t kLengthBytes = 8;
constexpr int kAlignment = 8;  // writers align the data to 8 bytes

std::int64_t bytes_of_dtype(const std::string& dtype) {
  static constexpr std::pair<const char*, std::int64_t> kSizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  for (const auto& [name, size] : kSizes)
    if (dtype == name) return size;
  return 0;
}

float from_half(std::uint16_t bits) {
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  const float sign = (bits & 0x8000U) ? -1.0F : 1.0F;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 31) return mantissa ? std::nanf("") : sign * INFINITY;
  return sign * std::ldexp(static_cast<float>(mantissa | 0x400U), static_cast<int>(exponent) - 25);
}

}  // namespace

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), name_(std::move(other.name_)), header_(std::move(other.header_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(name_, other.name_);
  std::swap(header_, other.header_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (file_ >= 0) ::close(file_);
}

base::Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile out;
  out.name_ = path.string();
  const auto bad = [&](const std::string& what) {
    return base::fail({base::Diagnostic{
        base::Severity::error, kCode, {out.name_, 0, 0, 1}, fmt::format("{}: {}", out.name_, what), {}, {}}});
  };
  out.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (out.file_ < 0 || fstat(out.file_, &info) != 0) return bad(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return bad("not a regular file");
  std::uint64_t length = 0;
  if (info.st_size < kLengthBytes || pread(out.file_, &length, sizeof length, 0) != sizeof length)
    return bad("shorter than the 8 bytes of a safetensors length");
  constexpr std::uint64_t kMostHeader = 100ULL << 20;
  if (length > kMostHeader || static_cast<std::int64_t>(length) > info.st_size - kLengthBytes)
    return bad(fmt::format("its header would be {} bytes in a file of {}", length, info.st_size));
  std::string json(length, '\0');
  if (pread(out.file_, json.data(), length, kLengthBytes) != static_cast<ssize_t>(length)) return bad("cut short");
  auto header =
      parse_safetensors_header(json, info.st_size - kLengthBytes - static_cast<std::int64_t>(length), out.name_);
  if (!header) return base::fail(header.error());
  out.header_ = std::move(*header);
  out.header_.data_start = kLengthBytes + static_cast<std::int64_t>(length);
  return out;
}

void SafetensorsFile::read(const TensorEntry& tensor, std::int64_t first, std::span<float> out) const {
  const std::int64_t size = bytes_of_dtype(tensor.dtype);
  ENSURE(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tensor.elements(), "elements {} + {} of {}",
         first, out.size(), tensor.elements());
  std::vector<std::byte> raw(out.size() * static_cast<std::size_t>(size));
  std::size_t have = 0;
  while (have < raw.size()) {
    const ssize_t n = pread(file_, raw.data() + have, raw.size() - have,
                            header_.data_start + tensor.begin + first * size + static_cast<std::int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Failure(
          fmt::format("{}: reading tensor {}: {}", name_, tensor.name, n == 0 ? "cut short" : std::strerror(errno)));
    have += static_cast<std::size_t>(n);
  }
  const auto convert = [&]<class T>(T, auto as_float) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
      out[i] = as_float(value);
    }
  };
  if (tensor.dtype == "F32") return convert(float{}, [](float v) { return v; });
  if (tensor.dtype == "F64") return convert(double{}, [](double v) { return static_cast<float>(v); });
  if (tensor.dtype == "F16") return convert(std::uint16_t{}, from_half);
  if (tensor.dtype == "BF16")
    return convert(std::uint16_t{},
                   [](std::uint16_t v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16); });
  throw Failure(
      fmt::format("{}: tensor {} has dtype {}, expected F32, F16, BF16 or F64", name_, tensor.name, tensor.dtype));
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : name_(path.string()), tensors_(std::move(tensors)), crcs_(tensors_.size()) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (TensorEntry& tensor : tensors_) {
    tensor.begin = at;
    at = tensor.end = at + tensor.elements() * 4;
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string start(reinterpret_cast<const char*>(&length), sizeof length);
  start += text;
  header_bytes_ = static_cast<std::int64_t>(start.size());
  header_crc_ = crc32(std::as_bytes(std::span(start)));
  expected_ = header_bytes_ + at;
  file_.emplace(path, expected_);
  file_->write(std::as_bytes(std::span(start)));
}

void SafetensorsWriter::append(std::span<const float> values) {
  auto bytes = std::as_bytes(values);
  file_->write(bytes);
  while (!bytes.empty()) {
    ENSURE(tensor_ < tensors_.size(), "{}: more values than its tensors have", name_);
    const TensorEntry& tensor = tensors_[tensor_];
    const std::size_t mine = std::min(bytes.size(), static_cast<std::size_t>(tensor.end - tensor.begin) - begun_);
    crcs_[tensor_] = crc32(bytes.first(mine), crcs_[tensor_]);
    bytes = bytes.subspan(mine);
    begun_ += mine;
    if (begun_ < static_cast<std::size_t>(tensor.end - tensor.begin)) continue;
    ++tensor_;
    begun_ = 0;
  }
}

std::uint32_t SafetensorsWriter::finish() {
  ENSURE(bytes() == expected_, "{}: {} of {} bytes written", name_, bytes(), expected_);
  file_->finish();
  std::uint32_t crc = header_crc_;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    crc = crc32_of_both(crc, crcs_[i], tensors_[i].end - tensors_[i].begin);
  return crc;
}

}  // namespace orrery::exec
