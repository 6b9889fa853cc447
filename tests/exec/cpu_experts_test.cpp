// The operators of mixtures of experts: against plain loops in double precision, and gradients against finite
// differences. Tokens do not divide evenly among experts, and some experts get none.
#include <algorithm>
#include <numeric>

#include "exec/engine/half.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_experts_test {

using models::DType;
using models::Routing;
using models::Scores;
using Halves = std::vector<std::uint16_t>;

std::size_t spot(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
Operand half_of(Halves& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), DType::bf16};
}
Halves halves(const Numbers& x) {
  Halves result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), to_bf16);
  return result;
}
Numbers widened(const Halves& x) {
  Numbers result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), from_bf16);
  return result;
}

// -- routers ----------------------------------------------------------------------------------------------------------

struct Router {
  const char* name;
  Routing routing;
  bool bias = false;
  std::int64_t tokens = 13, experts = 12, chosen = 3;
  [[nodiscard]] Op op(OpKind kind) const {
    Op op = rows_op(kind, tokens, experts);
    op.chosen = chosen;
    op.routing = routing;
    op.scale = 1.0 / 26;  // of two layers
    return op;
  }
};

std::vector<Router> routers() {
  Router softmax{"softmax", {}}, mixtral{"softmax, normalised", {}}, chosen{"softmax of the chosen", {}};
  mixtral.routing.normalised = true;
  chosen.routing.scores = Scores::softmax_chosen, chosen.bias = true;
  Router switches{"one of all", {}};
  switches.chosen = 1;
  Router v2{"DeepSeek-V2", {}};
  v2.routing.groups = 4, v2.routing.groups_chosen = 2, v2.routing.groups_by_two = false, v2.routing.weight_scale = 16;
  Router v3{"DeepSeek-V3", {}};
  v3.routing.scores = Scores::sigmoid, v3.routing.normalised = true, v3.routing.weight_scale = 2.5, v3.bias = true;
  v3.routing.groups = 4, v3.routing.groups_chosen = 2;
  Router llama{"Llama 4", {}};
  llama.routing.scores = Scores::sigmoid, llama.chosen = 1;
  std::vector<Router> all = {softmax, mixtral, chosen, switches, v2, v3, llama};
  for (Router& one : all) one.routing.aux = 0.3, one.routing.z = 0.2;
  return all;
}

Exact softmax(const Exact& x) {
  const double most = *std::max_element(x.begin(), x.end());
  Exact p(x.size());
  std::transform(x.begin(), x.end(), p.begin(), [&](double v) { return std::exp(v - most); });
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}
double log_sum_exp(const Exact& x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += std::exp(v - most);
  return most + std::log(sum);
}
Exact row_of_all(const Exact& all, std::int64_t row, std::int64_t columns) {
  return Exact(all.begin() + row * columns, all.begin() + (row + 1) * columns);
}

Exact scores_of(const Routing& routing, const Exact& logits) {
  if (routing.scores != Scores::sigmoid) return softmax(logits);
  Exact s(logits.size());
  std::transform(logits.begin(), logits.end(), s.begin(), [](double x) { return 1 / (1 + std::exp(-x)); });
  return s;
}

/// Of one token, by sorting.
Ids choice_of(const Router& r, const Exact& logits, const Numbers& bias) {
  Exact keys = scores_of(r.routing, logits);
  if (r.routing.scores == Scores::softmax_chosen) keys = logits;
  for (std::size_t e = 0; r.bias && e < keys.size(); ++e) keys[e] += static_cast<double>(bias[e]);
  const auto groups = static_cast<std::size_t>(r.routing.groups), width = keys.size() / groups;
  std::vector<std::pair<double, std::size_t>> by_group;
  for (std::size_t g = 0; g < groups; ++g) {
    Exact own(keys.begin() + static_cast<std::ptrdiff_t>(g * width),
              keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * width));
    std::sort(own.begin(), own.end(), std::greater<>());
    by_group.emplace_back(-(own[0] + (r.routing.groups_by_two ? own[1] : 0)), g);
  }
  std::sort(by_group.begin(), by_group.end());
  std::vector<std::pair<double, std::int32_t>> order;
  for (std::size_t i = 0; i < static_cast<std::size_t>(r.routing.groups_chosen); ++i)
    for (std::size_t e = by_group[i].second * width; e < (by_group[i].second + 1) * width; ++e)
      order.emplace_back(-keys[e], static_cast<std::int32_t>(e));
  std::sort(order.begin(), order.end());
  Ids choice;
  for (std::int64_t i = 0; i < r.chosen; ++i) choice.push_back(order[spot(i)].second);
  return choice;
}

Exact weights_of(const Router& r, const Exact& logits, const std::int32_t* choice) {
  Exact s = scores_of(r.routing, logits), w;
  for (std::int64_t i = 0; i < r.chosen; ++i)
    w.push_back(r.routing.scores == Scores::softmax_chosen ? logits[spot(choice[i])] : s[spot(choice[i])]);
  if (r.routing.scores == Scores::softmax_chosen) w = softmax(w);
  const double sum = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& v : w) v *= r.routing.weight_scale / (r.routing.normalised ? sum : 1);
  return w;
}

TEST(Routers, ChooseAndWeighAsTheirModelsSay) {
  for (const Router& r : routers()) {
    SCOPED_TRACE(r.name);
    Numbers logits = random_numbers(r.tokens * r.experts, "logits", 2), bias = random_numbers(r.experts, "bias", 0.5);
    const Exact x = exact(logits);
    Ids expected_choice;
    Exact expected_weights, expected_scores;
    for (std::int64_t t = 0; t < r.tokens; ++t) {
      const Exact row = row_of_all(x, t, r.experts), scores = scores_of(r.routing, row);
      const Ids choice = choice_of(r, row, bias);
      const Exact weights = weights_of(r, row, choice.data());
      expected_choice.insert(expected_choice.end(), choice.begin(), choice.end());
      expected_weights.insert(expected_weights.end(), weights.begin(), weights.end());
      expected_scores.insert(expected_scores.end(), scores.begin(), scores.end());
    }
    on_every_backend([&](Backend& backend) {
      Numbers scores(logits.size(), NAN), weights(expected_weights.size(), NAN);
      Ids choice(expected_choice.size(), -7);
      run(backend, r.op(OpKind::route), {of(logits), r.bias ? of(bias) : absent()},
          {of(scores), of(choice), of(weights)});
      EXPECT_EQ(choice, expected_choice);
      EXPECT_LT(error_of(scores, expected_scores), 1e-6);
      EXPECT_LT(error_of(weights, expected_weights), 1e-6);
      return std::vector<Numbers>{scores, weights};
    });
  }
}

// The choice is constant; what it weighs and both auxiliary losses are functions of the logits.
TEST(Routers, HaveTheGradientsOfTheirWeightsAndOfTheLossesThatBalanceThem) {
  for (const Router& r : routers()) {
    SCOPED_TRACE(r.name);
    Numbers logits = random_numbers(r.tokens * r.experts, "logits", 2), bias = random_numbers(r.experts, "bias", 0.5);
    Numbers dweights = random_numbers(r.tokens * r.chosen, "dweights");
    Numbers load = random_numbers(r.experts, "load", 0.5, 6);  // as if other layers and ranks had chosen too
    Exact x = exact(logits);
    Ids choice;
    for (std::int64_t t = 0; t < r.tokens; ++t)
      for (const std::int32_t e : choice_of(r, row_of_all(x, t, r.experts), bias)) choice.push_back(e);
    const double n = 1 / r.op(OpKind::route).scale;
    const auto loss = [&] {
      double total = 0;
      for (std::int64_t t = 0; t < r.tokens; ++t) {
        const Exact row = row_of_all(x, t, r.experts), p = softmax(row);
        const Exact w = weights_of(r, row, choice.data() + t * r.chosen);
        for (std::int64_t i = 0; i < r.chosen; ++i)
          total += w[spot(i)] * static_cast<double>(dweights[spot(t * r.chosen + i)]);
        for (std::size_t e = 0; e < p.size(); ++e)
          total += r.routing.aux * static_cast<double>(r.experts) * static_cast<double>(load[e]) / n * p[e] / n;
        total += r.routing.z * log_sum_exp(row) * log_sum_exp(row) / n;
      }
      return total;
    };
    const Exact expected = finite_differences(x, loss);
    on_every_backend([&](Backend& backend) {
      Numbers scores(logits.size(), NAN), weights(dweights.size(), NAN), dlogits(logits.size(), NAN);
      Ids chosen(choice.size(), -7);
      run(backend, r.op(OpKind::route), {of(logits), r.bias ? of(bias) : absent()},
          {of(scores), of(chosen), of(weights)});
      run(backend, r.op(OpKind::route_grad), {of(dweights), of(logits), of(scores), of(chosen), of(weights), of(load)},
          {of(dlogits)});
      EXPECT_LT(error_of(dlogits, expected), 3e-6);
      // In fp16 what comes back from the loss is scaled, and the router's own losses are scaled alike.
      Numbers scale = {1024}, scaled(dweights), all(logits.size(), NAN);
      for (float& one : scaled) one *= scale[0];
      run(backend, r.op(OpKind::route_grad),
          {of(scaled), of(logits), of(scores), of(chosen), of(weights), of(load), of(scale)}, {of(all)});
      for (float& one : all) one /= scale[0];
      EXPECT_LT(error_of(all, expected), 3e-6);
      return std::vector<Numbers>{dlogits};
    });
  }
}

TEST(Routers, TakeTheLowerOfEqualExperts) {
  Router r{"ties", {}};
  r.tokens = 1, r.experts = 6;
  r.routing.groups = 3, r.routing.groups_chosen = 2;
  on_every_backend([&](Backend& backend) {
    Numbers logits = {1, 1, 1, 1, 1, 1}, scores(6), weights(3);
    Ids choice(3);
    run(backend, r.op(OpKind::route), {of(logits)}, {of(scores), of(choice), of(weights)});
    EXPECT_EQ(choice, Ids({0, 1, 2}));
    return std::vector<Numbers>{weights};
  });
}

TEST(Routers, StopAtScoresThatAreNoNumbers) {
  Router r{"NaN", {}};
  for (const float bad : {NAN, INFINITY})
    on_every_backend([&](Backend& backend) {
      Numbers logits = random_numbers(r.tokens * r.experts, "logits"), scores(logits.size()), weights(39);
      Ids choice(39);
      logits[spot(7 * r.experts + 3)] = logits[spot(9 * r.experts)] = bad;
      StepContext context;
      context.step = 11, context.layer = plan::LayerId(3);
      try {
        run(backend, r.op(OpKind::route), {of(logits)}, {of(scores), of(choice), of(weights)}, context);
        ADD_FAILURE() << "a choice by scores that are no numbers";
      } catch (const Failure& failure) {
        EXPECT_EQ(std::string(failure.what()),
                  "step 12, layer 3: the router's scores of token 7 of the micro-batch are no finite numbers");
      }
      return std::vector<Numbers>{};
    });
}

// transformers' load_balancing_loss_func and router_z_loss_func.
TEST(Balance, CountsWhatIsChosenAndGivesTheLossesOfIt) {
  constexpr std::int64_t kTokens = 333, kExperts = 5, kChosen = 2;  // over several blocks, the last not full
  Numbers logits = random_numbers(kTokens * kExperts, "logits", 2);
  Ids choice;
  for (std::int64_t t = 0; t < kTokens; ++t) choice.push_back(t % 3 == 0 ? 4 : 0), choice.push_back(1);
  const Exact x = exact(logits);
  Exact tally(2 * kExperts + 1);
  double squares = 0, balance = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const Exact row = row_of_all(x, t, kExperts), p = softmax(row);
    for (std::int64_t i = 0; i < kChosen; ++i) ++tally[spot(choice[spot(t * kChosen + i)])];
    for (std::size_t e = 0; e < p.size(); ++e) tally[kExperts + e] += p[e];
    squares += log_sum_exp(row) * log_sum_exp(row);
  }
  tally[2 * kExperts] = squares;
  for (std::size_t e = 0; e < kExperts; ++e) balance += kExperts * tally[e] / kTokens * tally[kExperts + e] / kTokens;
  on_every_backend([&](Backend& backend) {
    Op op = rows_op(OpKind::count_choices, kTokens, kExperts);
    op.chosen = kChosen;
    Numbers found(tally.size(), 1.0F), losses(2, NAN), bias = {0.5F, 0, 0, 0, 0};
    run(backend, op, {of(logits), of(choice)}, {of(found)});  // adds
    for (float& value : found) value -= 1;
    EXPECT_LT(error_of(found, tally), 1e-6);
    run(backend, rows_op(OpKind::balance_losses, kTokens, kExperts), {of(found)}, {of(losses)});
    EXPECT_NEAR(losses[0], balance, 1e-5);
    EXPECT_NEAR(losses[1], squares / kTokens, 1e-4);
    Op biased = rows_op(OpKind::balance_bias, 1, kExperts);
    biased.scale = 0.125;
    run(backend, biased, {of(found)}, {of(bias)});
    EXPECT_EQ(bias, Numbers({0.375F, -0.125F, 0.125F, 0.125F, 0.125F}));  // loads 222, 333, 0, 0, 111; mean 133.2
    return std::vector<Numbers>{found, losses};
  });
}

TEST(Balance, LeavesTheBiasOfAnEvenlyLoadedExpert) {
  on_every_backend([&](Backend& backend) {
    Numbers tally = {3, 4, 5, 0, 0, 0, 0}, bias = {1, 1, 1};
    Op op = rows_op(OpKind::balance_bias, 1, 3);
    op.scale = 0.25;
    run(backend, op, {of(tally)}, {of(bias)});
    EXPECT_EQ(bias, Numbers({1.25F, 1, 0.75F}));
    return std::vector<Numbers>{};
  });
}

// -- rows in slots ----------------------------------------------------------------------------------------------------

/// 4 sequences of 5 tokens that take 2 of 6 experts, 3 in each of 2 slots. Nobody takes expert 4.
struct Placed {
  static constexpr std::int64_t kSequences = 4, kSequence = 5, kTokens = 20, kChosen = 2, kSlots = 2, kExperts = 3;
  std::int64_t capacity = 31;
  std::int64_t limit = 0;
  Ids choice, place, counts;
  Placed() {
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const std::int32_t first = t % 3 == 0 ? 5 : 1;
      choice.push_back(first);
      choice.push_back(t % 7 == 0 ? 3 : t % 5 == 0 ? 2 : 0);
    }
  }
  [[nodiscard]] Op op(OpKind kind, std::int64_t columns = 0) const {
    Op op = rows_op(kind, kTokens, columns);
    op.batch = kSequences, op.sequence = kSequence;
    op.chosen = kChosen, op.slots = kSlots, op.experts = kExperts, op.capacity = capacity;
    op.routing.token_limit = limit;
    return op;
  }
  void expect() {
    counts.assign(kSlots * kExperts, 0);
    place.assign(choice.size(), -1);
    for (std::int64_t slot = 0, e = 0; slot < kSlots; ++slot) {
      std::int64_t row = slot * capacity;
      for (std::int64_t i = 0; i < kExperts; ++i, ++e)
        for (std::int64_t s = 0; s < kSequences; ++s) {
          std::int64_t taken = 0;
          for (std::int64_t at = s * kSequence * kChosen; at < (s + 1) * kSequence * kChosen; ++at) {
            if (choice[spot(at)] != e || (limit > 0 && taken == limit)) continue;
            ++taken, ++counts[spot(e)];
            place[spot(at)] = static_cast<std::int32_t>(row++);
          }
        }
    }
  }
};

TEST(PlacesOfRows, AreByExpertThenByToken) {
  for (const std::int64_t limit : {0, 1, 2, 5}) {
    Placed rows;
    rows.limit = limit;
    rows.expect();
    EXPECT_EQ(rows.counts[4], 0);
    EXPECT_EQ(limit > 0 && limit<3, std::count(rows.place.begin(), rows.place.end(), -1)> 0);
    on_every_backend([&](Backend& backend) {
      Ids place(rows.choice.size(), -7), counts(6, -7);
      run(backend, rows.op(OpKind::place_rows), {of(rows.choice)}, {of(place), of(counts)});
      EXPECT_EQ(place, rows.place);
      EXPECT_EQ(counts, rows.counts);
      return std::vector<Numbers>{};
    });
  }
}

TEST(PlacesOfRows, EndTheRunWhereASlotHasNoRoom) {
  Placed rows;
  rows.expect();
  const std::int32_t needed = rows.counts[0] + rows.counts[1] + rows.counts[2];
  on_every_backend([&](Backend& backend) {
    Ids place(rows.choice.size()), counts(6);
    rows.capacity = needed;
    run(backend, rows.op(OpKind::place_rows), {of(rows.choice)}, {of(place), of(counts)});
    rows.capacity = needed - 1;
    StepContext context;
    context.step = 1, context.layer = plan::LayerId(0);
    try {
      run(backend, rows.op(OpKind::place_rows), {of(rows.choice)}, {of(place), of(counts)}, context);
      ADD_FAILURE() << "more rows than room";
    } catch (const Failure& failure) {
      const std::string what = failure.what();
      for (const std::string& part :
           {std::string("step 2, layer 0: experts 0 to"), std::string("expert_bound"), std::string("slot 0"),
            std::to_string(needed) + " rows", "room for " + std::to_string(needed - 1)})
        EXPECT_NE(what.find(part), std::string::npos) << what;
    }
    return std::vector<Numbers>{};
  });
}

/// All of what a token's rows are: sent, weighted and summed, with the gradients of both, in fp32 or with rows in bf16.
TEST(RowsInSlots, GoAndComeBackWeighted) {
  constexpr std::int64_t kColumns = 19;
  Placed rows;
  rows.limit = 2;  // some of a token's choices are dropped, of some tokens both
  rows.expect();
  Numbers x = random_numbers(Placed::kTokens * kColumns, "x"), weights = random_numbers(40, "weights");
  const std::int64_t all = 2 * rows.capacity;
  Numbers made = random_numbers(all * kColumns, "made");
  for (const bool narrow : {false, true}) {
    Halves x16 = halves(x), made16 = halves(made);
    const Numbers from = narrow ? widened(x16) : x, back = narrow ? widened(made16) : made;
    Exact plain(spot(all * kColumns), NAN), scaled = plain, sum(x.size()), weighted_sums(x.size()), dots(40);
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t row = rows.place[spot(i)];
      if (row < 0) continue;
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const double value = from[spot(i / 2 * kColumns + c)], came = back[spot(row * kColumns + c)];
        const double weight = weights[spot(i)];
        plain[spot(row * kColumns + c)] = value;
        scaled[spot(row * kColumns + c)] = weight * value;
        sum[spot(i / 2 * kColumns + c)] += came;
        weighted_sums[spot(i / 2 * kColumns + c)] += weight * came;
        dots[spot(i)] += value * came;
      }
    }
    on_every_backend([&](Backend& backend) {
      std::vector<Numbers> results;
      const double bound = narrow ? 1.0 / 256 : 1e-6;
      const auto made_of = [&](OpKind kind, std::vector<Operand> in, std::size_t count, bool to_narrow) {
        Numbers out(count, NAN);
        Halves out16(count, 0x7FC0);  // NaN
        Op op = rows.op(kind, kColumns);
        op.dtype = narrow ? DType::bf16 : DType::fp32;
        run(backend, op, std::move(in), {to_narrow ? half_of(out16) : of(out)});
        results.push_back(to_narrow ? widened(out16) : out);
        return results.back();
      };
      const Operand in = narrow ? half_of(x16) : of(x), returned = narrow ? half_of(made16) : of(made);
      // What is not there stays as it was.
      const auto compare_rows = [&](const Numbers& found, const Exact& expected) {
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << i;
          if (!std::isnan(expected[i])) {
            EXPECT_NEAR(found[i], expected[i], bound * (std::abs(expected[i]) + 1e-3));
          }
        }
      };
      compare_rows(made_of(OpKind::dispatch, {in, of(rows.place)}, plain.size(), narrow), plain);
      compare_rows(made_of(OpKind::dispatch, {in, of(rows.place), of(weights)}, plain.size(), narrow), scaled);
      compare_rows(made_of(OpKind::dispatch, {in, of(rows.place)}, plain.size(), false), plain);
      EXPECT_LT(error_of(made_of(OpKind::combine, {returned, of(rows.place)}, sum.size(), narrow), sum), bound);
      EXPECT_LT(error_of(made_of(OpKind::combine, {returned, of(rows.place), of(weights)}, sum.size(), narrow),
                         weighted_sums),
                bound);
      EXPECT_LT(error_of(made_of(OpKind::combine_weight_grad, {in, returned, of(rows.place)}, 40, false), dots), 1e-6);
      return results;
    });
  }
}

// -- products of experts ----------------------------------------------------------------------------------------------

struct Products {
  std::int64_t n, k;
  bool trans_b, two;
  DType dtype = DType::fp32;
};

/// Both operands of it in the type of the case.
struct Stored {
  Stored(Numbers from, bool narrow) : wide(std::move(from)), half(narrow ? halves(wide) : Halves()), is_half(narrow) {
    if (narrow) wide = widened(half);
  }
  [[nodiscard]] Operand operand() { return is_half ? half_of(half) : of(wide); }
  [[nodiscard]] Numbers numbers() const { return is_half ? widened(half) : wide; }
  Numbers wide;
  Halves half;
  bool is_half;
};

TEST(GroupedProducts, AreOneForEachExpertsRows) {
  constexpr std::int64_t kSlots = 2, kExperts = 3, kCapacity = 40;
  Ids counts = {7, 0, 21, 1, 0, 3};  // the second expert has none
  for (const Products& c : {Products{19, 11, true, false}, Products{19, 11, true, true}, Products{11, 19, false, false},
                            Products{11, 19, false, true}, Products{300, 16, true, true},
                            Products{300, 16, false, true, DType::bf16}, Products{300, 16, true, true, DType::bf16}}) {
    const bool narrow = c.dtype == DType::bf16;
    const std::int64_t inputs = c.two && !c.trans_b ? 2 : 1, outputs = c.two && c.trans_b ? 2 : 1;
    const std::int64_t lda = inputs * c.k, ldc = outputs * c.n;
    Stored a(random_numbers(kSlots * kCapacity * lda, "a"), narrow);
    Stored first(random_numbers(kExperts * c.n * c.k, "first"), narrow);
    Stored second(random_numbers(kExperts * c.n * c.k, "second"), narrow);
    Exact expected(spot(kSlots * kCapacity * ldc), NAN);
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      std::int64_t row = slot * kCapacity;
      for (std::int64_t e = 0; e < kExperts; ++e)
        for (std::int64_t i = 0; i < counts[spot(slot * kExperts + e)]; ++i, ++row)
          for (std::int64_t column = 0; column < ldc; ++column) {
            double sum = 0;
            for (std::int64_t j = 0; j < lda; ++j) {
              const bool other = c.two && (c.trans_b ? column >= c.n : j >= c.k);
              const std::int64_t to = column % c.n, from = j % c.k;
              const std::int64_t at = e * c.n * c.k + (c.trans_b ? to * c.k + from : from * c.n + to);
              sum += static_cast<double>(a.wide[spot(row * lda + j)]) *
                     static_cast<double>((other ? second : first).wide[spot(at)]);
            }
            expected[spot(row * ldc + column)] = sum;
          }
    }
    on_every_backend([&](Backend& backend) {
      Op op = rows_op(OpKind::grouped_matmul, 0, 0);
      op.n = c.n, op.k = c.k, op.trans_b = c.trans_b, op.dtype = c.dtype;
      op.slots = kSlots, op.experts = kExperts, op.capacity = kCapacity;
      Stored out(Numbers(expected.size(), NAN), narrow);
      std::vector<Operand> in = {a.operand(), first.operand(), of(counts)};
      if (c.two) in.push_back(second.operand());
      run(backend, op, in, {out.operand()});
      const Numbers found = out.numbers();
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << i;
        if (!std::isnan(expected[i])) {
          EXPECT_NEAR(found[i], expected[i], (narrow ? 1.0 / 256 : 1e-6) * (std::abs(expected[i]) + 5)) << i;
        }
      }
      return std::vector<Numbers>{found};
    });
  }
}

TEST(GroupedProducts, GiveEachExpertsWeightItsGradient) {
  constexpr std::int64_t kSlots = 2, kExperts = 3, kCapacity = 300;
  struct Case {
    std::int64_t m, n;
    bool two, narrow, narrow_result, accumulate;
  };
  Ids counts = {7, 0, 21, 1, 0, 270};
  for (const Case& c : {Case{13, 9, false, false, false, false}, Case{13, 9, true, false, false, true},
                        Case{270, 5, true, false, false, false}, Case{270, 5, true, true, false, true},
                        Case{13, 9, true, true, true, true}, Case{13, 9, false, true, true, false}}) {
    const std::int64_t ldy = (c.two ? 2 : 1) * c.m;
    Stored dy(random_numbers(kSlots * kCapacity * ldy, "dy"), c.narrow);
    Stored x(random_numbers(kSlots * kCapacity * c.n, "x"), c.narrow);
    const Stored before(random_numbers(kExperts * c.m * c.n, "before"), c.narrow_result);
    std::vector<Exact> expected(2, c.accumulate ? exact(before.wide) : Exact(before.wide.size()));
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      std::int64_t row = slot * kCapacity;
      for (std::int64_t e = 0; e < kExperts; ++e)
        for (std::int64_t i = 0; i < counts[spot(slot * kExperts + e)]; ++i, ++row)
          for (std::int64_t j = 0; j < ldy; ++j)
            for (std::int64_t column = 0; column < c.n; ++column)
              expected[spot(j / c.m)][spot((e * c.m + j % c.m) * c.n + column)] +=
                  static_cast<double>(dy.wide[spot(row * ldy + j)]) *
                  static_cast<double>(x.wide[spot(row * c.n + column)]);
    }
    on_every_backend([&](Backend& backend) {
      Op op = rows_op(OpKind::grouped_weight_grad, c.n, c.m);
      op.accumulate = c.accumulate, op.dtype = c.narrow ? DType::bf16 : DType::fp32;
      op.slots = kSlots, op.experts = kExperts, op.capacity = kCapacity;
      Stored first = before, second = before;
      std::vector<Operand> out = {first.operand()};
      if (c.two) out.push_back(second.operand());
      run(backend, op, {dy.operand(), x.operand(), of(counts)}, out);
      const double bound = c.narrow_result ? 1.0 / 256 : 2e-6;
      EXPECT_LT(error_of(first.numbers(), expected[0]), bound);
      if (c.two) {
        EXPECT_LT(error_of(second.numbers(), expected[1]), bound);
      }
      return std::vector<Numbers>{first.numbers(), second.numbers()};
    });
  }
}

// -- other operators --------------------------------------------------------------------------------------------------

TEST(RowsInSlots, AloneAreActivated) {
  constexpr std::int64_t kSlots = 3, kExperts = 2, kCapacity = 6, kColumns = 5, kRows = kSlots * kCapacity;
  Ids counts = {2, 3, 0, 0, 6, 0};
  for (const bool narrow : {false, true}) {
    Stored x(random_numbers(kRows * 2 * kColumns, "x"), narrow), dy(random_numbers(kRows * kColumns, "dy"), narrow);
    on_every_backend([&](Backend& backend) {
      Op op = rows_op(OpKind::swiglu, kRows, kColumns), back = rows_op(OpKind::swiglu_grad, kRows, kColumns);
      for (Op* one : {&op, &back}) one->dtype = narrow ? DType::bf16 : DType::fp32;
      Stored y(Numbers(spot(kRows * kColumns), 7.0F), narrow), dx(Numbers(spot(kRows * 2 * kColumns), 7.0F), narrow);
      Stored all_y = y, all_dx = dx;
      run(backend, op, {x.operand()}, {all_y.operand()});
      run(backend, back, {dy.operand(), x.operand()}, {all_dx.operand()});
      for (Op* one : {&op, &back}) one->slots = kSlots, one->experts = kExperts, one->capacity = kCapacity;
      run(backend, op, {x.operand(), of(counts)}, {y.operand()});
      run(backend, back, {dy.operand(), x.operand(), of(counts)}, {dx.operand()});
      const Numbers found = y.numbers(), slopes = dx.numbers(), of_all = all_y.numbers(),
                    slopes_of_all = all_dx.numbers();
      for (std::int64_t row = 0; row < kRows; ++row) {
        const std::int64_t slot = row / kCapacity;
        const bool there = row % kCapacity < counts[spot(2 * slot)] + counts[spot(2 * slot + 1)];
        for (std::int64_t i = row * kColumns; i < (row + 1) * kColumns; ++i)
          EXPECT_EQ(found[spot(i)], there ? of_all[spot(i)] : 7.0F);
        for (std::int64_t i = row * 2 * kColumns; i < (row + 1) * 2 * kColumns; ++i)
          EXPECT_EQ(slopes[spot(i)], there ? slopes_of_all[spot(i)] : 7.0F);
      }
      return std::vector<Numbers>{found, slopes};
    });
  }
}

TEST(RowGate, ScalesRowsBySigmoidsWithItsGradients) {
  constexpr std::int64_t kTokens = 7, kColumns = 23;
  Numbers x = random_numbers(kTokens * kColumns, "x"), g = random_numbers(kTokens, "g");
  Numbers dy = random_numbers(kTokens * kColumns, "dy");
  for (const bool narrow : {false, true}) {
    Stored in(x, narrow), out(dy, narrow);
    Exact rows = exact(in.wide), gates = exact(g);
    const auto values = [&] {
      Exact y(rows.size());
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = rows[i] / (1 + std::exp(-gates[i / kColumns]));
      return y;
    };
    const auto loss = [&] { return weighted_sum(values(), out.wide); };
    const Exact expected = values(), dx = finite_differences(rows, loss), dg = finite_differences(gates, loss);
    on_every_backend([&](Backend& backend) {
      Op op = rows_op(OpKind::row_gate, kTokens, kColumns);
      op.dtype = narrow ? DType::bf16 : DType::fp32;
      Stored y = in, back = out;
      Numbers of_gate(g.size(), NAN);
      run(backend, op, {y.operand(), of(g)}, {y.operand()});
      op.kind = OpKind::row_gate_grad;
      run(backend, op, {back.operand(), in.operand(), of(g)}, {back.operand(), of(of_gate)});
      const double bound = narrow ? 1.0 / 256 : 1e-6;
      EXPECT_LT(error_of(y.numbers(), expected), bound);
      EXPECT_LT(error_of(back.numbers(), dx), bound);
      EXPECT_LT(error_of(of_gate, dg), 1e-6);
      return std::vector<Numbers>{y.numbers(), back.numbers(), of_gate};
    });
  }
}

}  // namespace cpu_experts_test
}  // namespace orrery::exec::testing
