// Collectives and sends between threads: the last to arrive does the work for all.
#include "exec/engine/thread_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "base/ensure.h"
#include "exec/engine/half.h"
#include "exec/engine/reduce.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace {

enum class What { all_reduce, all_gather, reduce_scatter, all_to_all, all_to_all_counted };

struct Part {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::vector<std::int64_t> sent = {}, received = {};  ///< counted: elements, by member
};

/// One collective call of one group.
struct Call {
  What what{};
  plan::Reduce reduce{};
  models::DType dtype{};
  std::int64_t elements = 0;
  std::vector<Part> parts;
  int arrived = 0;
  bool done = false;
  std::string fault;
};

/// One message: whichever end arrives first leaves its side here.
struct Mail {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t bytes = 0;
  bool done = false;
  std::string fault;
};

// The sum of all parts: in fp32 as a binary tree of members, of 16 bits in their order.
std::vector<std::byte> sum_of(const Call& call, std::int64_t elements, std::size_t bytes) {
  const auto part = [&](std::size_t i) {
    return std::vector<std::byte>(call.parts[i].source, call.parts[i].source + bytes);
  };
  if (!is_16_bit(call.dtype)) {
    std::vector<std::vector<std::byte>> open;
    const auto join = [&] {
      reduce_into(open[open.size() - 2].data(), open.back().data(), elements, call.dtype, call.reduce);
      open.pop_back();
    };
    for (std::size_t i = 0; i < call.parts.size(); ++i) {
      open.push_back(part(i));
      for (int joins = joins_after(i); joins > 0; --joins) join();
    }
    while (open.size() > 1) join();
    return std::move(open.front());
  }
  std::vector<std::byte> sum = part(0);
  std::vector<float> wide(static_cast<std::size_t>(elements));
  widen(call.dtype, sum.data(), wide);
  for (std::size_t i = 1; i < call.parts.size(); ++i)
    reduce_wide(wide.data(), call.parts[i].source, elements, call.dtype, call.reduce);
  narrow(call.dtype, wide, sum.data());
  return sum;
}

void perform(Call& call) {
  const auto n = call.parts.size();
  const auto bytes = static_cast<std::size_t>(call.elements * models::size_of(call.dtype));
  if (call.what == What::all_gather) {
    std::vector<std::byte> all(bytes * n);
    for (std::size_t i = 0; i < n; ++i) std::memcpy(all.data() + i * bytes, call.parts[i].source, bytes);
    for (Part& part : call.parts) std::memcpy(part.target, all.data(), bytes * n);
    return;
  }
  if (call.what == What::all_to_all) {
    for (std::size_t to = 0; to < n; ++to)
      for (std::size_t from = 0; from < n; ++from)
        std::memcpy(call.parts[to].target + from * bytes, call.parts[from].source + to * bytes, bytes);
    return;
  }
  if (call.what == What::all_to_all_counted) {
    for (std::size_t to = 0; to < n; ++to)
      for (std::size_t from = 0; from < n; ++from) {
        if (call.parts[from].sent[to] != call.parts[to].received[from]) {
          call.fault = "a rank sends another number of values than its peer expects";
          return;
        }
        const auto count = static_cast<std::size_t>(call.parts[from].sent[to] * models::size_of(call.dtype));
        std::memcpy(call.parts[to].target + from * bytes, call.parts[from].source + to * bytes, count);
      }
    return;
  }
  const std::size_t whole = call.what == What::all_reduce ? bytes : bytes * n;
  const std::int64_t elements =
      call.what == What::all_reduce ? call.elements : call.elements * static_cast<std::int64_t>(n);
  const std::vector<std::byte> sum = sum_of(call, elements, whole);
  for (std::size_t i = 0; i < n; ++i)
    std::memcpy(call.parts[i].target, call.what == What::all_reduce ? sum.data() : sum.data() + i * bytes, bytes);
}

}  // namespace

struct ThreadWorld::Shared {
  explicit Shared(int n) : ranks(n), texts(static_cast<std::size_t>(n)), values(static_cast<std::size_t>(n)) {}
  int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::string aborted;
  std::map<std::tuple<GroupId, int, std::int64_t>, std::shared_ptr<Call>> calls;  // group, first member, sequence
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Mail>>> sends, receives;  // from, to, tag
  // one rendezvous of all ranks, for exchanges on the host
  int arrived = 0;
  std::int64_t generation = 0;
  std::vector<std::string> texts, texts_out;
  std::vector<double> values;
  double maximum_out = 0;

  void check() const {
    if (!aborted.empty()) throw Failure(aborted);
  }
};

namespace {

template <class State>
class SharedRequest : public Request {
 public:
  SharedRequest(ThreadWorld::Shared& shared, std::shared_ptr<State> state)
      : shared_(shared), state_(std::move(state)) {}
  bool test() override {
    const std::lock_guard lock(shared_.mutex);
    if (!state_->fault.empty()) throw Failure(state_->fault);
    if (state_->done) return true;
    shared_.check();
    return false;
  }

 private:
  ThreadWorld::Shared& shared_;
  std::shared_ptr<State> state_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(ThreadWorld::Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  std::string name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return shared_.ranks; }

  GroupId make_group(const plan::Group& group) override {
    groups_.push_back({group.members(rank_), 0});  // empty: not a member
    return static_cast<GroupId>(groups_.size()) - 1;
  }

  std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype, std::byte* data,
                                      std::int64_t elements) override {
    return join(group, What::all_reduce, reduce, dtype, elements, {data, data});
  }
  std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source, std::byte* target,
                                      std::int64_t elements_per_rank) override {
    return join(group, What::all_gather, plan::Reduce::sum, dtype, elements_per_rank, {source, target});
  }
  std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                          std::byte* target, std::int64_t elements_per_rank) override {
    return join(group, What::reduce_scatter, plan::Reduce::sum, dtype, elements_per_rank, {source, target});
  }
  std::unique_ptr<Request> all_to_all(GroupId group, models::DType dtype, const std::byte* source, std::byte* target,
                                      std::int64_t elements_per_rank) override {
    return join(group, What::all_to_all, plan::Reduce::sum, dtype, elements_per_rank, {source, target});
  }
  std::unique_ptr<Request> all_to_all_counted(GroupId group, models::DType dtype, const std::byte* source,
                                              std::byte* target, std::int64_t slot,
                                              const std::vector<std::int64_t>& sent,
                                              const std::vector<std::int64_t>& received) override {
    return join(group, What::all_to_all_counted, plan::Reduce::sum, dtype, slot, {source, target, sent, received});
  }
  std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                std::int64_t elements) override {
    Mail mine;
    mine.source = data;
    mine.bytes = elements * models::size_of(dtype);
    return post(rank_, to, tag, std::move(mine), true);
  }
  std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                   std::int64_t elements) override {
    Mail mine;
    mine.target = data;
    mine.bytes = elements * models::size_of(dtype);
    return post(from, rank_, tag, std::move(mine), false);
  }

  void barrier() override {
    meet([] {}, [] {});
  }
  std::vector<std::string> gather_text(const std::string& text) override {
    std::vector<std::string> out;
    meet([&] { shared_.texts[static_cast<std::size_t>(rank_)] = text; }, [&] { shared_.texts_out = shared_.texts; },
         [&] {
           if (rank_ == 0) out = shared_.texts_out;
         });
    return out;
  }
  double maximum(double value) override {
    double out = 0;
    meet([&] { shared_.values[static_cast<std::size_t>(rank_)] = value; },
         [&] { shared_.maximum_out = *std::max_element(shared_.values.begin(), shared_.values.end()); },
         [&] { out = shared_.maximum_out; });
    return out;
  }

 private:
  struct LocalGroup {
    std::vector<int> members;
    std::int64_t sequence = 0;
  };

  std::unique_ptr<Request> join(GroupId group, What what, plan::Reduce reduce, models::DType dtype,
                                std::int64_t elements, Part part) {
    LocalGroup& local = groups_.at(static_cast<std::size_t>(group));
    const auto place = std::find(local.members.begin(), local.members.end(), rank_);
    ENSURE(place != local.members.end(), "rank {} is not a member of group {}", rank_, group);
    const std::lock_guard lock(shared_.mutex);
    shared_.check();
    const auto key = std::make_tuple(group, local.members.front(), local.sequence++);
    std::shared_ptr<Call>& slot = shared_.calls[key];
    if (!slot) {
      slot = std::make_shared<Call>();
      slot->what = what;
      slot->reduce = reduce;
      slot->dtype = dtype;
      slot->elements = elements;
      slot->parts.resize(local.members.size());
    }
    const std::shared_ptr<Call> call = slot;
    if (call->what != what || call->reduce != reduce || call->dtype != dtype || call->elements != elements)
      call->fault = "ranks of one group called different collectives";
    call->parts[static_cast<std::size_t>(place - local.members.begin())] = std::move(part);
    if (++call->arrived == static_cast<int>(call->parts.size())) {
      if (call->fault.empty()) perform(*call);
      call->done = true;
      shared_.calls.erase(key);
    }
    return std::make_unique<SharedRequest<Call>>(shared_, call);
  }

  std::unique_ptr<Request> post(int from, int to, int tag, Mail mine, bool sending) {
    ENSURE(from >= 0 && from < size() && to >= 0 && to < size(), "message from rank {} to {} of {}", from, to, size());
    const std::lock_guard lock(shared_.mutex);
    shared_.check();
    const auto key = std::make_tuple(from, to, tag);
    auto& theirs = sending ? shared_.receives[key] : shared_.sends[key];
    if (theirs.empty()) {
      auto mail = std::make_shared<Mail>(std::move(mine));
      (sending ? shared_.sends[key] : shared_.receives[key]).push_back(mail);
      return std::make_unique<SharedRequest<Mail>>(shared_, mail);
    }
    std::shared_ptr<Mail> mail = theirs.front();
    theirs.pop_front();
    if (mail->bytes != mine.bytes)
      mail->fault = "a message and its receive differ in size";
    else if (mine.bytes > 0)
      std::memcpy(sending ? mail->target : mine.target, sending ? mine.source : mail->source,
                  static_cast<std::size_t>(mine.bytes));
    mail->done = true;
    return std::make_unique<SharedRequest<Mail>>(shared_, mail);
  }

  /// A meeting of all ranks: each calls `bring`, the last calls `combine`, then each calls `take`.
  template <class Bring, class Combine>
  void meet(Bring bring, Combine combine) {
    meet(bring, combine, [] {});
  }
  template <class Bring, class Combine, class Take>
  void meet(Bring bring, Combine combine, Take take) {
    std::unique_lock lock(shared_.mutex);
    shared_.check();
    const std::int64_t mine = shared_.generation;
    bring();
    if (++shared_.arrived == shared_.ranks) {
      shared_.arrived = 0;
      combine();
      ++shared_.generation;
      shared_.changed.notify_all();
    } else {
      shared_.changed.wait(lock, [&] { return shared_.generation != mine || !shared_.aborted.empty(); });
      if (shared_.generation == mine) shared_.check();
    }
    take();  // the next meeting cannot complete without this rank, so the result is still there
  }

  ThreadWorld::Shared& shared_;
  int rank_;
  std::vector<LocalGroup> groups_;
};

}  // namespace

ThreadWorld::ThreadWorld(int ranks) : shared_(std::make_unique<Shared>(ranks)) {}
ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Transport> ThreadWorld::transport(int rank) {
  return std::make_unique<ThreadTransport>(*shared_, rank);
}

void ThreadWorld::abort(const std::string& why) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->aborted.empty()) shared_->aborted = why;
  shared_->changed.notify_all();
}

}  // namespace orrery::exec
