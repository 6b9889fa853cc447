// A list from the newest to the oldest place, and a hash index with linear probing.
#include "exec/engine/row_cache.h"

#include <algorithm>
#include <bit>

#include "base/ensure.h"

namespace orrery::exec {

RowCache::RowCache(std::span<std::int32_t> books, const plan::TableShard& shard)
    : slots_(shard.slots), index_size_(plan::book_index(shard.slots)) {
  ENSURE(shard.book + plan::book_words(slots_) <= static_cast<std::int64_t>(books.size()), "books at {} of {} words",
         shard.book, books.size());
  shift_ = 32 - std::countr_zero(static_cast<std::uint64_t>(index_size_));
  header_ = books.data() + shard.book;
  row_ = header_ + plan::kBookHeader;
  newer_ = row_ + slots_;
  older_ = newer_ + slots_;
  touched_ = older_ + slots_;
  changed_ = touched_ + slots_;
  index_ = changed_ + slots_;
}

void RowCache::begin_step() {
  header_[kStep] = (header_[kStep] + 1) & 0x3fffffff;
  for (const Word word : {kLookups, kHits, kFetched, kWritten}) header_[word] = 0;
}

std::int32_t RowCache::look_up(std::int32_t row, bool changes) {
  ++header_[kLookups];
  const std::int32_t place = place_of(row);
  if (place < 0) return place;
  ++header_[kHits];
  touch(place, changes);
  return place;
}

void RowCache::touch(std::int32_t place, bool changes) {
  touched_[place] = header_[kStep];
  if (changes) changed_[place] = 1;
  unlink(place);
  to_front(place);
}

RowCache::Brought RowCache::bring(std::int32_t row, bool changes) {
  Brought out;
  out.place = place_of(row);
  if (out.place >= 0) {
    touch(out.place, changes);
    return out;
  }
  if (header_[kUsed] < slots_) {
    out.place = header_[kUsed]++;
  } else {
    out.place = header_[kLast] - 1;
    if (touched_[out.place] == header_[kStep]) return {};
    if (changed_[out.place] != 0) {
      out.written = row_[out.place];
      ++header_[kWritten];
    }
    erase(row_[out.place]);
    unlink(out.place);
  }
  out.fetch = true;
  ++header_[kFetched];
  row_[out.place] = row;
  touched_[out.place] = header_[kStep];
  changed_[out.place] = changes ? 1 : 0;
  insert(row, out.place);
  to_front(out.place);
  return out;
}

std::int32_t RowCache::place_of(std::int32_t row) const {
  for (std::int64_t at = bucket_of(row);; at = (at + 1) & (index_size_ - 1)) {
    if (index_[at] == 0) return -1;
    if (row_[index_[at] - 1] == row) return index_[at] - 1;
  }
}

RowCache::Counts RowCache::counts() const {
  return {header_[kLookups], header_[kHits], header_[kFetched], header_[kWritten]};
}

void RowCache::settle(const std::function<void(std::int32_t row, std::int32_t place)>& write) {
  for (std::int32_t place = 0; place < header_[kUsed]; ++place)
    if (changed_[place] != 0) {
      write(row_[place], place);
      changed_[place] = 0;
    }
}

// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
std::int64_t RowCache::bucket_of(std::int32_t row) const {
  constexpr std::uint32_t kGolden = 2654435769U;
  return shift_ >= 32 ? 0 : static_cast<std::int64_t>((static_cast<std::uint32_t>(row) * kGolden) >> shift_);
}

void RowCache::insert(std::int32_t row, std::int32_t place) {
  std::int64_t at = bucket_of(row);
  while (index_[at] != 0) at = (at + 1) & (index_size_ - 1);
  index_[at] = place + 1;
}

// Closes the gap: later entries that belong here move up (same volume, algorithm R).
void RowCache::erase(std::int32_t row) {
  const std::int64_t mask = index_size_ - 1;
  std::int64_t hole = bucket_of(row);
  while (row_[index_[hole] - 1] != row) hole = (hole + 1) & mask;
  for (std::int64_t at = (hole + 1) & mask; index_[at] != 0; at = (at + 1) & mask) {
    const std::int64_t home = bucket_of(row_[index_[at] - 1]);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    index_[hole] = index_[at];
    hole = at;
  }
  index_[hole] = 0;
}

void RowCache::unlink(std::int32_t place) {
  const std::int32_t newer = newer_[place], older = older_[place];
  (newer > 0 ? older_[newer - 1] : header_[kFirst]) = older;
  (older > 0 ? newer_[older - 1] : header_[kLast]) = newer;
}

void RowCache::to_front(std::int32_t place) {
  const std::int32_t first = header_[kFirst];
  newer_[place] = 0;
  older_[place] = first;
  (first > 0 ? newer_[first - 1] : header_[kLast]) = place + 1;
  header_[kFirst] = place + 1;
}

}  // namespace orrery::exec
