// Opens token files: detects their format, and checks that they are whole.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "exec/data/data.h"
#include "exec/data/encode_data.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

constexpr const char* kUnreadable = "E0611";      // a file or folder that cannot be read
constexpr const char* kMalformed = "E0612";       // a token file that contradicts itself
constexpr std::size_t kMostFiles = 4096;          // open at once
constexpr std::size_t kMostSegments = 1'000'000;  // sequences of a token file that are not contiguous

constexpr std::int32_t kLlmcGpt2 = 20240520;    // u16 tokens
constexpr std::int32_t kLlmcLlama3 = 20240801;  // u32 tokens
constexpr std::int32_t kLlmcLlama3Version = 7;  // llm.c, dev/data/data_common.py; GPT-2's files are of version 1
constexpr std::int64_t kLlmcHeader = 1024;
constexpr std::array<char, 9> kMegatronMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::int64_t kMegatronHeader = 34;
constexpr std::int64_t kSequencesRead = 1 << 16;  // sequences of an index read at a time

struct Bad {
  const char* code;
  std::string message, help;
};

}  // namespace

/// Builds a TokenStream; throws Bad, which open() turns into diagnostics.
struct TokenStreamBuilder {
  TokenStream stream;
  TokenStreamBuilder() : stream(TokenStream()) {}

  /// Opens a regular file (never a pipe or device, which could block) and returns its size.
  std::int64_t add_file(const fs::path& path) {
    if (stream.files_.size() >= kMostFiles)
      throw Bad{kUnreadable,
                fmt::format("{}: the folder holds more than {} files", path.parent_path().string(), kMostFiles),
                "join them"};
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
      throw Bad{kUnreadable, fmt::format("{}: {}", path.string(), std::strerror(errno)), "check training.data"};
    stream.files_.push_back({path.string(), descriptor});
    struct stat info {};
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode))
      throw Bad{kUnreadable, fmt::format("{}: not a regular file", path.string()), "check training.data"};
    return info.st_size;
  }

  template <class T>
  T value_at(const std::string& name, int descriptor, std::int64_t offset) const {
    T value{};
    if (pread(descriptor, &value, sizeof value, offset) != sizeof value)
      throw Bad{kMalformed, fmt::format("{}: cut short at byte {}", name, offset), {}};
    return value;
  }

  template <class T>
  void values_at(const std::string& name, int descriptor, std::int64_t offset, std::int64_t count,
                 std::vector<T>& into) const {
    into.resize(static_cast<std::size_t>(count));
    const auto bytes = static_cast<ssize_t>(into.size() * sizeof(T));
    if (pread(descriptor, into.data(), static_cast<std::size_t>(bytes), offset) != bytes)
      throw Bad{kMalformed, fmt::format("{}: cut short after byte {}", name, offset), {}};
  }

  void add_run(std::int64_t tokens, std::int64_t offset, int width, bool is_signed) {
    if (tokens == 0) return;
    if (stream.segments_.size() == kMostSegments)
      throw Bad{kMalformed,
                fmt::format("{}: more than {} parts that are not contiguous", stream.files_.back().name, kMostSegments),
                "write the tokens again, in the order of their index"};
    stream.segments_.push_back(
        {static_cast<int>(stream.files_.size()) - 1, stream.size_, tokens, offset, width, is_signed});
    stream.size_ += tokens;
  }

  void bytes(const fs::path& path) {
    add_run(add_file(path), 0, 1, false);
    stream.format_ = DataFormat::bytes;
  }

  void folder(const fs::path& path) {
    const auto found = data_files(path);
    if (!found) throw Bad{kUnreadable, found.error().front().message, "check training.data"};
    for (const fs::path& file : *found) bytes(file);
    stream.format_ = DataFormat::bytes;
  }

  bool llmc(const fs::path& path) {
    const std::int64_t size = add_file(path);
    const int descriptor = stream.files_.back().descriptor;
    std::array<std::int32_t, 3> header{};
    if (pread(descriptor, header.data(), sizeof header, 0) != sizeof header ||
        (header[0] != kLlmcGpt2 && header[0] != kLlmcLlama3))
      return false;
    const int width = header[0] == kLlmcGpt2 ? 2 : 4;
    if (header[1] != 1 && (header[0] != kLlmcLlama3 || header[1] != kLlmcLlama3Version))
      throw Bad{kMalformed,
                fmt::format("{}: llm.c token file of version {}, expected {}", path.string(), header[1],
                            header[0] == kLlmcLlama3 ? kLlmcLlama3Version : 1),
                {}};
    const std::int64_t tokens = header[2];
    if (tokens < 0 || size != kLlmcHeader + tokens * width)
      throw Bad{kMalformed,
                fmt::format("{}: its header says {} tokens of {} bytes after {} bytes, but the file has {} bytes",
                            path.string(), tokens, width, kLlmcHeader, size),
                "copy or write the file again"};
    add_run(tokens, kLlmcHeader, width, false);
    stream.format_ = DataFormat::llm_c;
    return true;
  }

  void megatron(const fs::path& bin, const fs::path& idx) {
    const std::int64_t index_size = add_file(idx);
    const std::string name = idx.string();
    const int index = stream.files_.back().descriptor;
    std::array<char, 9> magic{};
    if (pread(index, magic.data(), magic.size(), 0) != static_cast<ssize_t>(magic.size()) || magic != kMegatronMagic)
      throw Bad{kMalformed, fmt::format("{}: not a Megatron index (MMIDIDX)", name), {}};
    const auto version = value_at<std::uint64_t>(name, index, 9);
    if (version != 1) throw Bad{kMalformed, fmt::format("{}: index version {}, expected 1", name, version), {}};
    const auto [width, is_signed] = megatron_type(name, value_at<std::uint8_t>(name, index, 17));
    const auto sequences = value_at<std::uint64_t>(name, index, 18);
    const auto documents = value_at<std::uint64_t>(name, index, 26);
    const auto room = static_cast<std::uint64_t>(index_size);
    if (sequences > room / 12 || documents > room / 8 ||
        kMegatronHeader + static_cast<std::int64_t>(12 * sequences + 8 * documents) > index_size)
      throw Bad{kMalformed,
                fmt::format("{}: {} sequences and {} documents do not fit in its {} bytes", name, sequences, documents,
                            index_size),
                {}};
    const std::int64_t size = add_file(bin);
    const auto n = static_cast<std::int64_t>(sequences);
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> pointers;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t in_block = i % kSequencesRead, block = std::min(kSequencesRead, n - i);
      if (in_block == 0) {
        values_at(name, index, kMegatronHeader + 4 * i, block, lengths);
        values_at(name, index, kMegatronHeader + 4 * n + 8 * i, block, pointers);
      }
      const std::int32_t length = lengths[static_cast<std::size_t>(in_block)];
      const std::int64_t pointer = pointers[static_cast<std::size_t>(in_block)];
      if (length < 0 || pointer < 0 || pointer > size || (size - pointer) / width < length)
        throw Bad{kMalformed,
                  fmt::format("{}: sequence {} ({} tokens at byte {}) lies outside {} of {} bytes", name, i, length,
                              pointer, bin.string(), size),
                  {}};
      TokenStream::Segment* last = stream.segments_.empty() ? nullptr : &stream.segments_.back();
      if (last && last->offset + last->tokens * width == pointer) {
        last->tokens += length;
        stream.size_ += length;
      } else {
        add_run(length, pointer, width, is_signed);
      }
    }
    stream.format_ = DataFormat::megatron;
  }

  static std::pair<int, bool> megatron_type(const std::string& name, std::uint8_t code) {
    switch (code) {
      case 1: return {1, false};
      case 2: return {1, true};
      case 3: return {2, true};
      case 4: return {4, true};
      case 5: return {8, true};
      case 8: return {2, false};
      default:
        throw Bad{kMalformed, fmt::format("{}: element type {} is not an integer type (1 to 5, 8)", name, code), {}};
    }
  }
};

base::Result<TokenStream> TokenStream::open(const fs::path& path) {
  TokenStreamBuilder builder;
  try {
    std::error_code error;
    fs::path index = path;
    index.replace_extension(".idx");
    fs::path bin = path;
    bin.replace_extension(".bin");
    if (fs::is_directory(path, error))
      builder.folder(path);
    else if (path.extension() == ".idx")
      builder.megatron(bin, path);
    else if (path.extension() == ".bin" && fs::exists(index, error))
      builder.megatron(path, index);
    else if (path.extension() != ".bin")
      builder.bytes(path);
    else if (!builder.llmc(path))
      throw Bad{kMalformed,
                fmt::format("{}: neither an llm.c token file (magic {} or {}) nor beside a Megatron .idx",
                            path.string(), kLlmcGpt2, kLlmcLlama3),
                "to train on the bytes of a file, give it another ending than .bin"};
    if (builder.stream.size_ < 2)
      throw Bad{kMalformed,
                fmt::format("{}: holds {} tokens, but at least 2 are needed", path.string(), builder.stream.size_),
                "check training.data"};
  } catch (const Bad& bad) {
    return base::fail(
        {base::Diagnostic{base::Severity::error, bad.code, {path.string(), 0, 0, 1}, bad.message, bad.help, {}}});
  }
  return std::move(builder.stream);
}

}  // namespace orrery::exec
