// Encodes a corpus file by file, and recognises one that is already encoded.
#include "exec/data/encode_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/failure.h"
#include "exec/files/checksum.h"
#include "exec/files/files.h"

namespace orrery::exec {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr const char* kUnreadable = "E0611";
constexpr std::size_t kMostFiles = 1'000'000;    // of a folder
constexpr std::size_t kMostHeld = 256U << 20;    // bytes of text without a line end
constexpr std::size_t kChunk = 4 << 20;          // bytes of text at a time
constexpr std::size_t kMostRecord = 256U << 20;  // bytes
constexpr std::int64_t kLongest = 1 << 30;       // tokens of a sequence: its length is 32 bits wide
constexpr std::int64_t kNarrow = 1 << 16;        // vocabularies up to this take two bytes per token

base::Diagnostic unreadable(const fs::path& path, const std::string& why) {
  return {base::Severity::error, kUnreadable, {path.string(), 0, 0, 1}, fmt::format("{}: {}", path.string(), why),
          "check training.data", {}};
}

/// What the encoding depends on; equal records mean equal tokens.
ordered_json record_of(const std::vector<fs::path>& files, const fs::path& tokenizer) {
  ordered_json record;
  record["format_version"] = "1.0";
  record["vocabulary"] = ordered_json::array();
  std::vector<fs::path> words;
  std::error_code error;
  const fs::path folder = fs::is_directory(tokenizer, error) ? tokenizer : tokenizer.parent_path();
  if (!fs::is_directory(tokenizer, error)) words.push_back(tokenizer);
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe", "vocab.txt",
                           "tokenizer_config.json"})
    if (fs::exists(folder / name, error) && folder / name != tokenizer) words.push_back(folder / name);
  for (const fs::path& file : words) {
    const std::string text = read_file(file, kMostRecord);
    record["vocabulary"].push_back({{"file", file.string()}, {"crc32", crc32(std::as_bytes(std::span(text)))}});
  }
  record["files"] = ordered_json::array();
  for (const fs::path& file : files)
    record["files"].push_back({{"file", file.string()},
                               {"bytes", fs::file_size(file)},
                               {"modified", fs::last_write_time(file).time_since_epoch().count()}});
  return record;
}

/// Writes tokens to NAME.bin; NAME.idx lists its sequences.
class TokenFile {
 public:
  TokenFile(fs::path path, std::int64_t vocab)
      : path_(std::move(path)), width_(vocab <= kNarrow ? 2 : 4), out_(path_.string() + ".tmp", std::ios::binary) {
    if (!out_) throw Failure(fmt::format("cannot write {}", path_.string()));
  }
  void append(const std::vector<std::int32_t>& ids) {
    std::string raw(ids.size() * static_cast<std::size_t>(width_), '\0');
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::memcpy(raw.data() + i * static_cast<std::size_t>(width_), &ids[i], static_cast<std::size_t>(width_));
    out_.write(raw.data(), static_cast<std::streamsize>(raw.size()));
    length_ += static_cast<std::int64_t>(ids.size());
    for (; length_ >= kLongest; length_ -= kLongest) lengths_.push_back(static_cast<std::int32_t>(kLongest));
  }
  [[nodiscard]] bool in_document() const { return length_ > 0 || lengths_.size() > document_begin_; }
  void end_document() {
    if (length_ > 0) lengths_.push_back(static_cast<std::int32_t>(length_));
    length_ = 0;
    documents_.push_back(static_cast<std::int64_t>(lengths_.size()));
    document_begin_ = lengths_.size();
  }
  /// Writes the index, and gives both files their names.
  void finish() {
    out_.close();
    if (!out_) throw Failure(fmt::format("cannot write {}: is the disk full?", path_.string()));
    std::string index("MMIDIDX\0\0", 9);
    const auto put = [&index](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(std::uint64_t{1});
    put(static_cast<std::uint8_t>(width_ == 2 ? 8 : 4));  // uint16, int32
    put(static_cast<std::uint64_t>(lengths_.size()));
    put(static_cast<std::uint64_t>(documents_.size()));
    for (const std::int32_t length : lengths_) put(length);
    std::int64_t at = 0;
    for (const std::int32_t length : lengths_) {
      put(at);
      at += std::int64_t{width_} * length;
    }
    for (const std::int64_t document : documents_) put(document);
    fs::rename(path_.string() + ".tmp", path_);
    fs::path name = path_;
    write_atomically(name.replace_extension(".idx"), index);
  }

 private:
  fs::path path_;
  int width_;
  std::ofstream out_;
  std::vector<std::int32_t> lengths_;          ///< of sequences, in tokens
  std::vector<std::int64_t> documents_ = {0};  ///< sequences before each document, and in total
  std::int64_t length_ = 0;                    ///< of the current sequence
  std::size_t document_begin_ = 0;
};

class Encoding {
 public:
  Encoding(const Tokenizer& tokenizer, TokenFile& out) : tokenizer_(tokenizer), out_(out) {}

  void text(std::string_view rest) {
    const std::string& word = tokenizer_.end_of_text_word();
    while (!rest.empty()) {
      const std::size_t at = word.empty() ? std::string_view::npos : rest.find(word);
      ids_.clear();
      tokenizer_.encode(rest.substr(0, at), ids_);
      out_.append(ids_);
      if (at == std::string_view::npos) return;
      end();
      rest.remove_prefix(at + word.size());
    }
  }
  void end() {
    if (!out_.in_document()) return;
    if (const auto id = tokenizer_.end_of_text()) out_.append({*id});
    out_.end_document();
  }

 private:
  const Tokenizer& tokenizer_;
  TokenFile& out_;
  std::vector<std::int32_t> ids_;
};

void encode_file(const fs::path& file, Encoding& encoding, const std::function<void(std::int64_t)>& done) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Failure(fmt::format("{}: cannot be opened", file.string()));
  std::string held;
  while (in) {
    const std::size_t before = held.size();
    held.resize(before + kChunk);
    in.read(held.data() + before, static_cast<std::streamsize>(kChunk));
    held.resize(before + static_cast<std::size_t>(in.gcount()));
    done(in.gcount());
    const std::size_t cut = in ? safe_cut(held) : held.size();
    if (held.size() - cut > kMostHeld)
      throw Failure(fmt::format("{}: {} bytes in which no line ends after a letter", file.string(), held.size()));
    encoding.text(std::string_view(held).substr(0, cut));
    held.erase(0, cut);
  }
  if (in.bad()) throw Failure(fmt::format("{}: cannot be read", file.string()));
  encoding.end();
}

}  // namespace

std::size_t safe_cut(std::string_view text) {
  for (std::size_t at = text.rfind('\n'); at != std::string_view::npos && at > 0; at = text.rfind('\n', at - 1)) {
    const char before = text[at - 1];
    if ((before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z')) return at;
  }
  return 0;
}

base::Result<std::vector<fs::path>> data_files(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> found;
  if (!fs::is_directory(path, error)) {
    if (!fs::is_regular_file(path, error))
      return base::fail({unreadable(path, error ? error.message() : "not a regular file")});
    return std::vector<fs::path>{path};
  }
  auto walk = fs::recursive_directory_iterator(path, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    std::error_code none;  // of one entry, such as a dangling link, which is left out
    if (walk->is_regular_file(none) && !walk->is_symlink(none)) found.push_back(walk->path());
    if (found.size() > kMostFiles)
      return base::fail({unreadable(path, fmt::format("the folder holds more than {} files", kMostFiles))});
  }
  if (error) return base::fail({unreadable(path, error.message())});
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) { return a.string() < b.string(); });
  return found;
}

base::Result<JobTokens> job_tokens(const plan::Training& training, std::int64_t vocab, const fs::path& run,
                                   const std::function<void(std::int64_t, std::int64_t)>& progress) {
  JobTokens out{training.data, training.evaluation ? training.evaluation->data : std::string()};
  if (training.tokenizer.empty()) return out;
  const auto words = Tokenizer::open(training.tokenizer);
  if (!words) return base::fail(words.error());
  if (words->vocab() > vocab)
    return base::fail({base::Diagnostic{
        base::Severity::error,
        "E0618",
        {training.tokenizer, 0, 0, 1},
        fmt::format("the tokenizer has {} tokens, but the model's vocabulary has {}", words->vocab(), vocab),
        "give the model at least as many",
        {}}});
  for (const auto& [path, name] : {std::pair{&out.data, "train"}, std::pair{&out.held_out, "held-out"}}) {
    if (path->empty()) continue;
    auto encoded = encoded_data(*path, training.tokenizer, run / "tokens", name, progress);
    if (!encoded) return base::fail(encoded.error());
    *path = std::move(*encoded);
  }
  return out;
}

base::Result<fs::path> encoded_data(const fs::path& data, const fs::path& tokenizer, const fs::path& cache,
                                    const std::string& name,
                                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (data.extension() == ".bin" || data.extension() == ".idx") return data;
  const auto files = data_files(data);
  if (!files) return base::fail(files.error());
  const auto words = Tokenizer::open(tokenizer);
  if (!words) return base::fail(words.error());
  const fs::path bin = cache / (name + ".bin"), idx = cache / (name + ".idx"), known = cache / (name + ".json");
  const std::string record = record_of(*files, tokenizer).dump(1) + "\n";
  std::error_code error;
  if (fs::exists(bin, error) && fs::exists(idx, error) && fs::exists(known, error) &&
      read_file(known, kMostRecord) == record)
    return bin;
  fs::create_directories(cache);
  fs::remove(known);
  std::int64_t all = 0, done = 0;
  for (const fs::path& file : *files) all += static_cast<std::int64_t>(fs::file_size(file));
  TokenFile out(bin, words->vocab());
  Encoding encoding(*words, out);
  for (const fs::path& file : *files)
    encode_file(file, encoding, [&](std::int64_t bytes) {
      done += bytes;
      if (progress) progress(done, all);
    });
  out.finish();
  write_atomically(known, record);
  return bin;
}

}  // namespace orrery::exec
