// Exchanges through the host's transport.
#include "exec/cuda/rendezvous.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "base/ensure.h"
#include "base/random.h"
#include "exec/failure.h"

namespace orrery::exec::cuda {

void finish(Request& request, const std::string& doing, double deadline_s) {
  constexpr int kSpins = 1000;
  constexpr std::chrono::microseconds kNap{20};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
  for (int tests = 0; !request.test(); ++tests) {
    if (tests < kSpins) continue;
    if (std::chrono::steady_clock::now() > deadline)
      throw Failure(fmt::format("{}: no answer within {} s", doing, deadline_s));
    std::this_thread::sleep_for(kNap);
  }
}

std::vector<std::byte> exchange(Transport& host, GroupId world, std::span<const std::byte> mine, double deadline_s) {
  ENSURE(mine.size() % 4 == 0, "a block of {} bytes", mine.size());
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(host.size()));
  const auto words = static_cast<std::int64_t>(mine.size() / 4);
  const auto request = host.all_gather(world, models::DType::int32, mine.data(), all.data(), words);
  finish(*request, "meeting the other ranks", deadline_s);
  return all;
}

std::uint64_t gpu_identity(const std::string& bus_id) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string boot;  // distinguishes containers of one name on different machines
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return base::stream_of(std::string(name.data()) + "|" + boot + "|" + bus_id);
}

bool any_shared(std::span<const std::uint64_t> identities) {
  std::vector<std::uint64_t> sorted(identities.begin(), identities.end());
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

std::vector<std::vector<Direction>> rounds_of(std::vector<Direction> directions) {
  std::sort(directions.begin(), directions.end());
  directions.erase(std::unique(directions.begin(), directions.end()), directions.end());
  std::vector<std::vector<Direction>> rounds;
  std::vector<std::set<int>> busy;
  for (const Direction& direction : directions) {
    std::size_t round = 0;
    while (round < busy.size() && (busy[round].count(direction.from) > 0 || busy[round].count(direction.to) > 0))
      ++round;
    if (round == busy.size()) busy.emplace_back(), rounds.emplace_back();
    busy[round].insert({direction.from, direction.to});
    rounds[round].push_back(direction);
  }
  return rounds;
}

}  // namespace orrery::exec::cuda
