// Reads and writes through host memory.
#include "exec/state/stored_values.h"

#include <algorithm>

#include "base/ensure.h"
#include "exec/engine/half.h"
#include "exec/engine/quantised.h"

namespace orrery::exec {

namespace {

constexpr std::int64_t kBlock = models::kQuantisedBlock;

}  // namespace

StoredValues::StoredValues(const plan::RankClass& rank_class, Arena& arena, Backend& backend, plan::BufferId buffer,
                           int version)
    : buffer_(rank_class.buffers[buffer]), data_(arena.data(buffer, {-1, version})), backend_(backend) {
  if (buffer_.dtype != models::DType::uint8) return;
  for (const plan::Bucket& bucket : rank_class.buckets) {
    if (buffer != bucket.first_moment && buffer != bucket.second_moment) continue;
    signed_ = buffer == bucket.first_moment;
    scales_ = arena.data(signed_ ? bucket.first_scale : bucket.second_scale, -1);
  }
  ENSURE(scales_ != nullptr, "buffer {} has bytes and no scales", buffer_.name);
}

std::byte* StoredValues::at(std::int64_t element) const {
  return data_ + element * models::size_of(buffer_.dtype);
}

void StoredValues::read(std::int64_t first, std::span<float> values) {
  if (scales_ != nullptr) return read_codes(first, values);
  host_.resize(values.size() * static_cast<std::size_t>(models::size_of(buffer_.dtype)));
  backend_.copy_to_host(host_, at(first));
  widen(buffer_.dtype, host_.data(), values);
}

void StoredValues::read_codes(std::int64_t first, std::span<float> values) {
  const CodeBook& book = signed_ ? signed_codes() : unsigned_codes();
  const std::int64_t from = first / kBlock, end = first + static_cast<std::int64_t>(values.size());
  std::vector<float> scales(static_cast<std::size_t>((end + kBlock - 1) / kBlock - from));
  backend_.copy_to_host(std::as_writable_bytes(std::span(scales)), scales_ + 4 * from);
  host_.resize(values.size());
  backend_.copy_to_host(host_, at(first));
  for (std::int64_t i = first; i < end; ++i) {
    const auto place = static_cast<std::size_t>(i - first);
    values[place] =
        book.values[static_cast<std::size_t>(host_[place])] * scales[static_cast<std::size_t>(i / kBlock - from)];
  }
}

void StoredValues::write(std::int64_t first, std::span<const float> values) {
  if (scales_ != nullptr) {
    staged_.resize(static_cast<std::size_t>(buffer_.elements));
    std::copy(values.begin(), values.end(), staged_.begin() + first);
    return;
  }
  host_.resize(values.size() * static_cast<std::size_t>(models::size_of(buffer_.dtype)));
  narrow(buffer_.dtype, values, host_.data());
  backend_.copy_to_device(at(first), host_);
}

void StoredValues::finish() {
  if (staged_.empty()) return;
  const CodeBook& book = signed_ ? signed_codes() : unsigned_codes();
  std::vector<std::uint8_t> codes(staged_.size());
  std::vector<float> scales(staged_.size() / static_cast<std::size_t>(kBlock));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::size_t begin = i * static_cast<std::size_t>(kBlock);
    scales[i] = quantise(book, std::span(staged_).subspan(begin, static_cast<std::size_t>(kBlock)), &codes[begin]);
  }
  backend_.copy_to_device(data_, std::as_bytes(std::span(codes)));
  backend_.copy_to_device(scales_, std::as_bytes(std::span(scales)));
  staged_.clear();
}

}  // namespace orrery::exec
