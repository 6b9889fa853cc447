// Criteo's lines.
#include "exec/clicks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/printable.h"
#include "exec/checksum.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kStride = 256;                   // lines between two known places
constexpr std::int64_t kKept = std::int64_t{64} << 20;  // bytes of a file that is read as a whole
constexpr std::int64_t kLookedAt = 1000;                // lines of a larger one
constexpr std::int64_t kBlock = std::int64_t{1} << 20;
constexpr std::size_t kMostFound = 20;
constexpr std::int64_t kLongestLine = std::int64_t{1} << 22;

class LineReader {
 public:
  LineReader(std::string_view text, const std::string& file, int line) : text_(text), file_(file), line_(line) {}

  bool next(std::string_view& field) {
    if (at_ > text_.size()) return false;
    first_ = at_;
    const std::size_t end = std::min(text_.find('\t', at_), text_.size());
    field = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }
  void bad(const char* code, std::string message, std::string help, std::size_t length = 1) {
    if (found.size() >= kMostFound) return;
    base::Diagnostic one{base::Severity::error, code, {}, std::move(message), std::move(help), {}};
    one.where = {file_, line_, static_cast<int>(first_) + 1, static_cast<int>(std::max<std::size_t>(length, 1))};
    found.push_back(std::move(one));
  }
  base::Diagnostics found;

 private:
  std::string_view text_;
  const std::string& file_;
  int line_;
  std::size_t at_ = 0, first_ = 0;
};

// A whole number, or a decimal one; NaN and infinities are refused.
bool read_dense(LineReader& in, std::string_view field, float& out) {
  out = 0;
  if (field.empty()) return true;
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
    in.bad("E0661", fmt::format("a dense feature is a number, found {}", base::quoted(std::string(field))),
           "an empty field where the value is missing", field.size());
    return false;
  }
  out = value > 0 ? static_cast<float>(std::log1p(value)) : 0.0F;
  return true;
}

bool read_category(LineReader& in, std::string_view field, std::int64_t rows, std::int32_t& out) {
  out = 0;
  if (field.empty()) return true;
  constexpr int kHexadecimal = 16;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, kHexadecimal);
  if (error != std::errc() || end != field.data() + field.size()) {
    in.bad("E0661", fmt::format("a category is a hexadecimal number, found {}", base::quoted(std::string(field))),
           "digits and letters a to f, without a sign or 0x; an empty field is value 0", field.size());
    return false;
  }
  out = static_cast<std::int32_t>(value % static_cast<std::uint64_t>(rows));
  return true;
}

}  // namespace

base::Diagnostics parse_click(std::string_view text, const std::string& file, int line,
                              const models::Recommender& model, const ClickBatch& sample) {
  LineReader in(text, file, line);
  const auto wanted = static_cast<std::size_t>(1 + model.dense_features + model.indices());
  const auto there = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\t')) + 1;
  std::string_view field;
  if (there != wanted) {
    // The place is where the first missing field, or the first that is too many, would be.
    for (std::size_t i = 0; i <= std::min(there, wanted); ++i) (void)in.next(field);
    if (there < wanted)
      while (in.next(field)) {
      }
    in.bad("E0660",
           fmt::format("{} fields, and the model reads {}: the label, {} dense features, {} categories", there, wanted,
                       model.dense_features, model.indices()),
           there < wanted ? "the line is cut, or of another model" : "the line is of another model");
    return std::move(in.found);
  }
  (void)in.next(field);
  if (field != "0" && field != "1")
    in.bad("E0661", fmt::format("the label is 0 or 1, found {}", base::quoted(std::string(field))),
           "1 where the sample was clicked on", field.size());
  sample.labels[0] = field == "1" ? 1.0F : 0.0F;
  for (float& value : sample.dense) (void)(in.next(field) && read_dense(in, field, value));
  std::size_t at = 0;
  for (const models::Table& table : model.tables)
    for (std::int64_t i = 0; i < table.multi_hot; ++i)
      (void)(in.next(field) && read_category(in, field, table.rows, sample.indices[at++]));
  return std::move(in.found);
}

ClickFile::~ClickFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

base::Result<std::shared_ptr<const ClickFile>> ClickFile::open(const std::filesystem::path& path,
                                                               const models::Recommender& model) {
  std::shared_ptr<ClickFile> file(new ClickFile);
  file->name_ = path.string();
  file->model_ = model;
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file->descriptor_ < 0 || ::fstat(file->descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
    return base::fail({base::Diagnostic{
        base::Severity::error,
        "E0611",
        {file->name_, 0, 0, 1},
        fmt::format("the training data cannot be read: {}", file->descriptor_ < 0 ? std::strerror(errno) : "no file"),
        "a file of samples in Criteo's form, a line each; a relative path is taken from the job's folder",
        {}}});
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
                          "leave the file as it is while a run reads it",
                          {}});
    have += static_cast<std::size_t>(n);
  }
  return out;
}

ClickBatch ClickFile::kept(std::int64_t index) const {
  const auto features = static_cast<std::size_t>(model_.dense_features),
             bag = static_cast<std::size_t>(model_.indices());
  const auto at = static_cast<std::size_t>(index);
  return {std::span(dense_).subspan(at * features, features), std::span(labels_).subspan(at, 1),
          std::span(indices_).subspan(at * bag, bag)};
}

base::Diagnostics ClickFile::scan() {
  base::Diagnostics found;
  std::string line;
  std::vector<float> dense(static_cast<std::size_t>(model_.dense_features)), label(1);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(model_.indices()));
  const auto end_line = [&] {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if ((keeps_ || size_ < kLookedAt) && found.size() < kMostFound) {
      const ClickBatch sample{dense, label, indices};
      for (base::Diagnostic& one : parse_click(line, name_, static_cast<int>(size_ + 1), model_, sample))
        found.push_back(std::move(one));
      if (keeps_) {
        dense_.insert(dense_.end(), dense.begin(), dense.end());
        labels_.push_back(label[0]);
        indices_.insert(indices_.end(), indices.begin(), indices.end());
      }
    }
    ++size_;
    line.clear();
  };
  for (std::int64_t at = 0; at < bytes_; at += kBlock) {
    const std::string block = bytes(at, kBlock);
    for (std::size_t i = 0; i < block.size();) {
      if (line.empty() && size_ % kStride == 0) starts_.push_back(at + static_cast<std::int64_t>(i));
      const std::size_t end = std::min(block.find('\n', i), block.size());
      // A line that two blocks have a part of is put together where it is read.
      if (keeps_ || size_ < kLookedAt || line.empty()) line.append(block, i, end - i);
      if (static_cast<std::int64_t>(line.size()) > kLongestLine)
        return {base::Diagnostic{base::Severity::error,
                                 "E0660",
                                 {name_, static_cast<int>(size_ + 1), 1, 1},
                                 "a line of more than 4 MiB is no sample",
                                 "samples in Criteo's form, a line each",
                                 {}}};
      i = end + 1;
      if (end == block.size()) break;
      if (line.empty()) line.push_back(' ');  // an empty line is one, and no sample
      end_line();
    }
  }
  if (!line.empty()) end_line();
  if (size_ == 0 && found.empty())
    found.push_back({base::Severity::error,
                     "E0660",
                     {name_, 1, 1, 1},
                     "the file has no samples",
                     "samples in Criteo's form, a line each",
                     {}});
  if (found.size() > kMostFound) found.resize(kMostFound);
  return found;
}

void ClickFile::read(std::int64_t index, const ClickBatch& sample) const {
  const std::int64_t at = index % size_;
  if (keeps_) {
    const ClickBatch from = kept(at);
    std::copy(from.dense.begin(), from.dense.end(), sample.dense.begin());
    std::copy(from.labels.begin(), from.labels.end(), sample.labels.begin());
    std::copy(from.indices.begin(), from.indices.end(), sample.indices.begin());
    return;
  }
  const auto place = static_cast<std::size_t>(at / kStride);
  const std::int64_t first = starts_[place], last = place + 1 < starts_.size() ? starts_[place + 1] : bytes_;
  const std::string block = bytes(first, last - first);
  std::string_view text = block;
  for (std::int64_t skip = at % kStride; skip > 0; --skip)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  base::Diagnostics found = parse_click(text, name_, static_cast<int>(at + 1), model_, sample);
  if (!found.empty()) throw InputFailure(std::move(found.front()));
}

DataMark ClickFile::mark() const {
  constexpr std::int64_t kRun = 16384, kRuns = 256;
  DataMark mark{size_, "criteo", 0};
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
