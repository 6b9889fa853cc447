// Files of samples.
#include "exec/data/clicks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/ensure.h"
#include "exec/failure.h"
#include "exec/files/checksum.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kStride = 256;                   // lines between two known offsets
constexpr std::int64_t kKept = std::int64_t{64} << 20;  // bytes of a file that is kept as a whole
constexpr std::int64_t kLookedAt = 1000;                // lines checked in a larger one
constexpr std::int64_t kBlock = std::int64_t{1} << 20;
constexpr std::int64_t kTogether = 4096;  // samples per read
constexpr std::size_t kMostFound = 20;
constexpr std::int64_t kLongestLine = std::int64_t{1} << 22;
constexpr std::int64_t kFieldBytes = 4;

int number_of(std::int64_t line) {
  return static_cast<int>(std::min<std::int64_t>(line + 1, std::numeric_limits<int>::max()));
}

base::Diagnostic no_sample(const std::string& file, std::int64_t line, std::string message, const char* help) {
  return {base::Severity::error, "E0660", {file, number_of(line), 1, 1}, std::move(message), help, {}};
}

const char* const kTextHelp = "samples in Criteo's form, one per line";
const char* const kRecordHelp = "records of int32, each with all fields of a sample, and nothing before or after them";

std::string_view without_return(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

}  // namespace

void ClickSource::read_chances(std::int64_t, std::span<float>, std::span<float>) const {
  ENSURE(false, "these samples have no known click model");
}

ClickFile::~ClickFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

base::Result<std::shared_ptr<const ClickFile>> ClickFile::open(const std::filesystem::path& path,
                                                               const models::Recommender& model, plan::BadLines bad,
                                                               std::optional<plan::Categories> categories) {
  std::shared_ptr<ClickFile> file(new ClickFile);
  file->name_ = path.string();
  file->model_ = model;
  file->skips_ = bad == plan::BadLines::skip;
  file->binary_ = path.extension() == ".bin";
  // Criteo's lines hold hashes; records are what a preprocessing made of them, which numbers a table's categories.
  file->categories_ = categories.value_or(file->binary_ ? plan::Categories::rows : plan::Categories::hashed);
  const auto refuse = [&](std::string why, const char* help) {
    return base::fail(
        {base::Diagnostic{base::Severity::error, "E0611", {file->name_, 0, 0, 1}, std::move(why), help, {}}});
  };
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file->descriptor_ < 0 || ::fstat(file->descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
    return refuse(
        fmt::format("the training data cannot be read: {}", file->descriptor_ < 0 ? std::strerror(errno) : "no file"),
        "give a file of samples in Criteo's form, one per line; a relative path starts at the job's folder");
  if (path.extension() == ".npz")
    return refuse(
        "numpy arrays are not a file of samples",
        "the public DLRM converts them to a .bin (data_loader_terabyte.py, numpy_to_binary), which can be read");
  file->bytes_ = status.st_size;
  file->keeps_ = file->bytes_ <= kKept;
  base::Diagnostics found;
  try {
    found = file->scan();
  } catch (const InputFailure& failure) {
    found = {failure.diagnostic()};
  }
  if (!found.empty()) return base::fail(std::move(found));
  return std::shared_ptr<const ClickFile>(std::move(file));
}

std::string ClickFile::bytes(std::int64_t first, std::int64_t count) const {
  std::string out(static_cast<std::size_t>(std::min(count, bytes_ - first)), '\0');
  for (std::size_t have = 0; have < out.size();) {
    const ssize_t n =
        ::pread(descriptor_, out.data() + have, out.size() - have, first + static_cast<std::int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw InputFailure({base::Severity::error,
                          "E0611",
                          {name_, 0, 0, 1},
                          fmt::format("the training data cannot be read at byte {}: {}", first,
                                      n < 0 ? std::strerror(errno) : "the file has become shorter"),
                          "do not change the file while a run reads it",
                          {}});
    have += static_cast<std::size_t>(n);
  }
  return out;
}

ClickBatch ClickFile::part_of(const ClickBatch& samples, std::int64_t at, std::int64_t count) const {
  const auto features = static_cast<std::size_t>(model_.dense_features),
             bag = static_cast<std::size_t>(words_of_sample(model_));
  const auto first = static_cast<std::size_t>(at), n = static_cast<std::size_t>(count);
  return {samples.dense.subspan(first * features, n * features), samples.labels.subspan(first, n),
          samples.indices.subspan(first * bag, n * bag)};
}

base::Diagnostics ClickFile::scan() {
  base::Diagnostics found;
  if (binary_)
    scan_records(found);
  else
    scan_lines(found);
  if (size_ == 0 && found.empty()) {
    found = first_skipped_;
    found.push_back(no_sample(name_, 0,
                              lines_ == 0 ? "the file has no samples" : "none of the file's lines can be read",
                              binary_ ? kRecordHelp : kTextHelp));
  }
  if (found.size() > kMostFound) found.resize(kMostFound);
  return found;
}

// Parses one more line into `sample`.
template <class Parse>
void ClickFile::look_at(base::Diagnostics& found, const ClickBatch& sample, const Parse& parse) {
  const std::int64_t line = lines_++;
  if ((!keeps_ && !skips_ && line >= kLookedAt) || found.size() >= kMostFound) {
    ++size_;
    return;
  }
  base::Diagnostics wrong = parse(line);
  if (!wrong.empty() && skips_) {
    if (++skipped_ == 1) first_skipped_ = std::move(wrong);
    if (!keeps_) bad_.push_back(line);
    return;
  }
  ++size_;
  for (base::Diagnostic& one : wrong) found.push_back(std::move(one));
  if (!keeps_) return;
  dense_.insert(dense_.end(), sample.dense.begin(), sample.dense.end());
  labels_.push_back(sample.labels[0]);
  indices_.insert(indices_.end(), sample.indices.begin(), sample.indices.end());
}

void ClickFile::scan_lines(base::Diagnostics& found) {
  std::vector<float> dense(static_cast<std::size_t>(model_.dense_features)), label(1);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(words_of_sample(model_)));
  const ClickBatch sample{dense, label, indices};
  const auto end_line = [&](std::string_view text) {
    look_at(found, sample, [&](std::int64_t line) {
      return parse_click(without_return(text), name_, number_of(line), model_, categories_, sample);
    });
  };
  std::string carried;  // the beginning of a line that spans two blocks
  bool open = false;
  for (std::int64_t at = 0; at < bytes_; at += kBlock) {
    const std::string block = bytes(at, kBlock);
    for (std::size_t i = 0; i < block.size();) {
      if (!open && lines_ % kStride == 0) starts_.push_back(at + static_cast<std::int64_t>(i));
      const std::size_t end = std::min(block.find('\n', i), block.size());
      const std::string_view part(block.data() + i, end - i);
      open = end == block.size();
      if (open || !carried.empty()) carried += part;
      if (static_cast<std::int64_t>(std::max(carried.size(), part.size())) > kLongestLine)
        return found.push_back(no_sample(name_, lines_, "a line of more than 4 MiB is not a sample", kTextHelp));
      if (!open) {
        end_line(carried.empty() ? part : std::string_view(carried));
        carried.clear();
      }
      i = end + 1;
    }
  }
  if (open) end_line(carried);
}

void ClickFile::scan_records(base::Diagnostics& found) {
  const std::int64_t fields = record_fields(model_), record = fields * kFieldBytes;
  const std::int64_t whole = bytes_ / record, looked_at = keeps_ || skips_ ? whole : std::min(whole, kLookedAt);
  std::vector<float> dense(static_cast<std::size_t>(model_.dense_features)), label(1);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(words_of_sample(model_))), values;
  const ClickBatch sample{dense, label, indices};
  for (std::int64_t at = 0; at < looked_at; at += kTogether) {
    const std::int64_t count = std::min(kTogether, looked_at - at);
    const std::string block = bytes(at * record, count * record);
    values.resize(static_cast<std::size_t>(count * fields));
    std::memcpy(values.data(), block.data(), block.size());
    for (std::int64_t i = 0; i < count; ++i)
      look_at(found, sample, [&](std::int64_t line) {
        return parse_click_record(
            std::span(values).subspan(static_cast<std::size_t>(i * fields), static_cast<std::size_t>(fields)), name_,
            number_of(line), model_, categories_, sample);
      });
  }
  size_ += whole - looked_at;
  lines_ = whole;
  if (bytes_ % record == 0) return;
  base::Diagnostic cut =
      no_sample(name_, whole,
                fmt::format("{} bytes, but a record for the model has {}: the label, {} dense features, {} fields of "
                            "categories, 4 bytes each",
                            bytes_ % record, record, model_.dense_features, fields - 1 - model_.dense_features),
                "the file is cut, or made for another model");
  ++lines_;
  if (!skips_) return found.push_back(std::move(cut));
  if (++skipped_ == 1) first_skipped_ = {std::move(cut)};
}

// Adds the skipped lines before a sample: bad_[j] - j, the number of the sample that would be there, never decreases.
std::int64_t ClickFile::line_of(std::int64_t sample) const {
  std::size_t low = 0, high = bad_.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (bad_[middle] - static_cast<std::int64_t>(middle) <= sample)
      low = middle + 1;
    else
      high = middle;
  }
  return sample + static_cast<std::int64_t>(low);
}

void ClickFile::read(std::int64_t first, const ClickBatch& samples) const {
  const auto count = static_cast<std::int64_t>(samples.labels.size());
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (first + done) % size_;
    const std::int64_t run = std::min({count - done, size_ - at, kTogether});
    read_run(at, run, part_of(samples, done, run));
    done += run;
  }
}

void ClickFile::read_run(std::int64_t first, std::int64_t count, const ClickBatch& samples) const {
  if (!keeps_) return binary_ ? read_records(first, count, samples) : read_lines(first, count, samples);
  const auto copy = [&](const auto& all, const auto& to, std::int64_t width) {
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first * width), count * width, to.begin());
  };
  copy(dense_, samples.dense, model_.dense_features);
  copy(labels_, samples.labels, 1);
  copy(indices_, samples.indices, words_of_sample(model_));
}

void ClickFile::read_lines(std::int64_t first, std::int64_t count, const ClickBatch& samples) const {
  std::int64_t line = line_of(first);
  const auto begin = static_cast<std::size_t>(line / kStride),
             end = static_cast<std::size_t>(line_of(first + count - 1) / kStride + 1);
  const std::int64_t from = starts_[begin], to = end < starts_.size() ? starts_[end] : bytes_;
  const std::string block = bytes(from, to - from);
  std::string_view text = block;
  const auto take = [&] {
    const std::size_t at = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, at);
    text.remove_prefix(std::min(at + 1, text.size()));
    return without_return(one);
  };
  for (std::int64_t skip = line % kStride; skip > 0; --skip) (void)take();
  auto bad = std::lower_bound(bad_.begin(), bad_.end(), line);
  for (std::int64_t i = 0; i < count; ++line) {
    const std::string_view one = take();
    if (bad != bad_.end() && *bad == line) {
      ++bad;
      continue;
    }
    base::Diagnostics found = parse_click(one, name_, number_of(line), model_, categories_, part_of(samples, i, 1));
    if (!found.empty()) throw InputFailure(std::move(found.front()));
    ++i;
  }
}

void ClickFile::read_records(std::int64_t first, std::int64_t count, const ClickBatch& samples) const {
  const std::int64_t fields = record_fields(model_), record = fields * kFieldBytes;
  const std::int64_t begin = line_of(first), end = line_of(first + count - 1) + 1;
  const std::string block = bytes(begin * record, (end - begin) * record);
  std::vector<std::int32_t> values(static_cast<std::size_t>(fields));
  auto bad = std::lower_bound(bad_.begin(), bad_.end(), begin);
  for (std::int64_t line = begin, i = 0; i < count; ++line) {
    if (bad != bad_.end() && *bad == line) {
      ++bad;
      continue;
    }
    std::memcpy(values.data(), block.data() + (line - begin) * record, static_cast<std::size_t>(record));
    base::Diagnostics found =
        parse_click_record(values, name_, number_of(line), model_, categories_, part_of(samples, i, 1));
    if (!found.empty()) throw InputFailure(std::move(found.front()));
    ++i;
  }
}

DataMark ClickFile::mark() const {
  constexpr std::int64_t kRun = 16384, kRuns = 256;
  DataMark mark{size_, format(), 0};
  const std::int64_t runs = std::min((bytes_ + kRun - 1) / kRun, kRuns);
  for (std::int64_t i = 0; i < runs; ++i) {
    const std::int64_t first = runs < kRuns ? i * kRun : (bytes_ - kRun) / (kRuns - 1) * i;
    const std::string run = bytes(first, kRun);
    mark.sampled_crc = crc32(std::as_bytes(std::span(run)), mark.sampled_crc);
  }
  return mark;
}

double area_under_curve(std::span<const float> scores, std::span<const float> labels) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double clicked = 0, ranks = 0;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && scores[order[end]] == scores[order[i]]) ++end;
    const double rank = (static_cast<double>(i + 1) + static_cast<double>(end)) / 2;
    for (; i < end; ++i)
      if (labels[order[i]] > 0) clicked += 1, ranks += rank;
  }
  const double others = static_cast<double>(scores.size()) - clicked;
  if (clicked == 0 || others == 0) return 0.5;
  return (ranks - clicked * (clicked + 1) / 2) / (clicked * others);
}

}  // namespace orrery::exec
