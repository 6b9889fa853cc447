// Reads samples ahead.
#include "exec/data/click_reader.h"

#include <algorithm>
#include <utility>

namespace orrery::exec {

ClickReader::ClickReader(const Batches& batches, std::int64_t first, std::int64_t count, int ahead)
    : batches_(batches),
      first_(first),
      count_(count),
      ahead_(static_cast<std::size_t>(std::max(1, ahead))),
      thread_([this] { work(); }) {}

ClickReader::~ClickReader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wanted_.notify_one();
  thread_.join();
}

ClickReader::Ready ClickReader::read(std::int64_t step) const {
  Ready out;
  const auto n = static_cast<std::size_t>(count_);
  const models::Recommender& model = batches_.clicks()->model();
  try {
    out.dense.resize(n * static_cast<std::size_t>(model.dense_features));
    out.labels.resize(n);
    out.indices.resize(n * static_cast<std::size_t>(words_of_sample(model)));
    batches_.load_clicks(step, first_, count_, {out.dense, out.labels, out.indices});
  } catch (...) {
    out.failure = std::current_exception();
  }
  return out;
}

void ClickReader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] { return ends_ || (begun_ && ready_.size() < ahead_); });
    if (ends_) return;
    const std::int64_t step = next_++, restarts = restarts_;
    lock.unlock();
    Ready one = read(step);
    lock.lock();
    if (restarts != restarts_) continue;
    ready_.push_back(std::move(one));
    there_.notify_one();
  }
}

std::size_t ClickReader::ready() {
  const std::lock_guard lock(mutex_);
  return ready_.size();
}

void ClickReader::load(std::int64_t step, const ClickBatch& out) {
  std::unique_lock lock(mutex_);
  if (!begun_ || step != coming_) {
    ready_.clear();
    next_ = step;
    ++restarts_;
    begun_ = true;
  }
  coming_ = step + 1;
  wanted_.notify_one();
  there_.wait(lock, [&] { return !ready_.empty(); });
  Ready one = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  wanted_.notify_one();
  if (one.failure) std::rethrow_exception(one.failure);
  std::copy(one.dense.begin(), one.dense.end(), out.dense.begin());
  std::copy(one.labels.begin(), one.labels.end(), out.labels.begin());
  std::copy(one.indices.begin(), one.indices.end(), out.indices.begin());
}

}  // namespace orrery::exec
