// Run under mpiexec: long sums over MPI are right, also several at once, in place or not, of lengths that members do
// not divide; sums of 2, 4, 8 … ranks are binary trees of them. Every rank checks its own results; the exit status is 0
// when all are right, 1 otherwise.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/engine/half.h"
#include "exec/mpi/mpi_transport.h"

namespace orrery::exec {
namespace {

// Small whole numbers, so that sums in fp32 are exact in any order.
float value(int rank, std::int64_t index, int which) {
  return static_cast<float>((index * (which + 3) + rank * 17) % 61 - 30);
}

std::vector<float> filled(int rank, std::int64_t elements, int which) {
  std::vector<float> x(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) x[static_cast<std::size_t>(i)] = value(rank, i, which);
  return x;
}

float expected(int ranks, std::int64_t index, int which, plan::Reduce reduce) {
  float all = value(0, index, which);
  for (int rank = 1; rank < ranks; ++rank) {
    const float one = value(rank, index, which);
    all = reduce == plan::Reduce::sum ? all + one : std::max(all, one);
  }
  return all;
}

std::byte* bytes(std::vector<float>& x) {
  return reinterpret_cast<std::byte*>(x.data());
}

std::byte* as_bytes(std::vector<std::uint16_t>& x) {
  return reinterpret_cast<std::byte*>(x.data());
}

class Checks {
 public:
  Checks(Transport& transport, const Waiter& waiter) : transport_(transport), waiter_(waiter) {
    plan::Group all;
    all.name = "world";
    all.dimensions = {{1, transport.size()}};
    group_ = transport.make_group(all);
  }

  void all_reduces(std::int64_t elements) {
    constexpr int kAtOnce = 3;
    std::vector<std::vector<float>> data;
    std::vector<std::unique_ptr<Request>> requests;
    for (int which = 0; which < kAtOnce; ++which) data.push_back(filled(transport_.rank(), elements, which));
    for (int which = 0; which < kAtOnce; ++which)
      requests.push_back(
          transport_.all_reduce(group_, kind(which), models::DType::fp32, bytes(data[which_at(which)]), elements));
    for (int which = kAtOnce; which-- > 0;) finish(*requests[which_at(which)]);
    for (int which = 0; which < kAtOnce; ++which)
      for (std::int64_t i = 0; i < elements; ++i)
        check(data[which_at(which)][static_cast<std::size_t>(i)], expected(transport_.size(), i, which, kind(which)),
              "all_reduce", elements, i);
  }

  void reduce_scatters(std::int64_t per_rank, bool in_place) {
    std::vector<float> source = filled(transport_.rank(), per_rank * transport_.size(), 1);
    std::vector<float> apart(static_cast<std::size_t>(per_rank));
    const std::int64_t first = per_rank * transport_.rank();
    float* const target = in_place ? source.data() + first : apart.data();
    const auto request = transport_.reduce_scatter(group_, models::DType::fp32, bytes(source),
                                                   reinterpret_cast<std::byte*>(target), per_rank);
    finish(*request);
    for (std::int64_t i = 0; i < per_rank; ++i)
      check(target[i], expected(transport_.size(), first + i, 1, plan::Reduce::sum), "reduce_scatter", per_rank, i);
  }

  // 2^24 and, of each other rank, 1, which alone is lost beside it in fp32: as a binary tree the ones meet first.
  void sums_as_trees(std::int64_t elements) {
    const int ranks = transport_.size();
    if (!std::has_single_bit(static_cast<unsigned>(ranks))) return;
    constexpr float kLarge = 16777216;
    std::vector<float> data(static_cast<std::size_t>(elements), transport_.rank() == 0 ? kLarge : 1.0F);
    finish(*transport_.all_reduce(group_, plan::Reduce::sum, models::DType::fp32, bytes(data), elements));
    const float expected = kLarge + static_cast<float>(ranks - 2);
    for (std::int64_t i = 0; i < elements; ++i)
      check(data[static_cast<std::size_t>(i)], expected, "all_reduce as a tree", elements, i);
  }

  // 1 and, of each other rank, 1/512, which alone is lost beside it in bf16: the sum is rounded once.
  void sums_in_16_bits(std::int64_t per_rank) {
    const int ranks = transport_.size();
    std::vector<std::uint16_t> source(static_cast<std::size_t>(per_rank * ranks),
                                      transport_.rank() == 0 ? 0x3f80 : 0x3b00);
    std::vector<std::uint16_t> sums(static_cast<std::size_t>(per_rank));
    const auto request =
        transport_.reduce_scatter(group_, models::DType::bf16, as_bytes(source), as_bytes(sums), per_rank);
    finish(*request);
    const float expected = from_bf16(to_bf16(1 + static_cast<float>(ranks - 1) / 512));
    for (std::int64_t i = 0; i < per_rank; ++i)
      check(from_bf16(sums[static_cast<std::size_t>(i)]), expected, "reduce_scatter in bf16", per_rank, i);
  }

  [[nodiscard]] bool right() const { return wrong_ == 0; }

 private:
  static std::size_t which_at(int which) { return static_cast<std::size_t>(which); }
  static plan::Reduce kind(int which) { return which == 1 ? plan::Reduce::maximum : plan::Reduce::sum; }
  void finish(Request& request) {
    waiter_.finish(request, [] { return std::string("a sum"); });
  }
  void check(float found, float wanted, const char* what, std::int64_t elements, std::int64_t index) {
    if (found == wanted || ++wrong_ > 5) return;
    fmt::print(stderr, "rank {} of {}: {} of {}: element {} is {}, not {}\n", transport_.rank(), transport_.size(),
               what, elements, index, found, wanted);
  }

  Transport& transport_;
  const Waiter& waiter_;
  GroupId group_ = 0;
  int wrong_ = 0;
};

}  // namespace
}  // namespace orrery::exec

int main(int argc, char** argv) {
  using namespace orrery::exec;
  const MpiSession session(&argc, &argv);
  const Waiter waiter(wait_policy(session.size(), available_cores(), std::chrono::seconds(60)));
  const std::unique_ptr<Transport> transport = make_mpi_transport(session, waiter);
  Checks checks(*transport, waiter);
  for (const std::int64_t elements : {1, 1000, 100'000, 200'001, 1'000'003}) {
    checks.all_reduces(elements);
    checks.sums_as_trees(elements);
    checks.reduce_scatters(elements / 3 + 1, false);
    checks.reduce_scatters(elements / 3 + 1, true);
    checks.sums_in_16_bits(elements / 3 + 1);
  }
  const bool all_right = transport->maximum(checks.right() ? 0 : 1) == 0;
  if (session.rank() == 0) fmt::print("{}\n", all_right ? "every sum is right" : "sums are wrong");
  return all_right ? 0 : 1;
}
