// Tokens and masks, opened on every rank alike.
#include "exec/run_data.h"

#include <fmt/format.h>

#include <utility>

#include "exec/agreement.h"
#include "exec/encode_data.h"

namespace orrery::exec {
namespace {

template <class T>
base::Result<bool> whether(const base::Result<T>& result) {
  return result ? base::Result<bool>(true) : base::Result<bool>(base::fail(result.error()));
}

}  // namespace

std::optional<base::Diagnostic> short_data(const plan::Training& training, const plan::PlanSpec& spec,
                                           const TokenStream& stream, std::int64_t steps) {
  const double wanted =
      static_cast<double>(steps) * static_cast<double>(spec.batch) * static_cast<double>(spec.sequence) + 1;
  const auto there = static_cast<double>(stream.size());
  if (wanted <= there) return std::nullopt;
  return base::Diagnostic{base::Severity::warning,
                          "E0614",
                          {training.data, 0, 0, 1},
                          fmt::format("{} tokens for a run of {} steps that reads {:.0f}: they are read {:.1f} times",
                                      stream.size(), steps, wanted, wanted / there),
                          "give more data, or train fewer steps",
                          {}};
}

base::Result<RunData> open_data(const plan::Plan& plan, const plan::Training& training, Transport& transport,
                                const std::filesystem::path& run) {
  if (training.data.empty())
    return base::fail("E0610", "the plan's job names no training data", "add training.data to the job");
  const auto encode = [&] { return job_tokens(training, plan.model().vocab, run); };
  base::Result<JobTokens> tokens = JobTokens{};
  if (transport.rank() == 0) tokens = encode();
  if (auto all = agreed(transport, whether(tokens)); !all) return base::fail(all.error());
  if (transport.rank() != 0) tokens = encode();  // rank 0 has left it there
  auto stream = tokens ? TokenStream::open(tokens->data) : base::Result<TokenStream>(base::fail(tokens.error()));
  if (auto all = agreed(transport, whether(stream)); !all) return base::fail(all.error());
  const plan::PlanSpec& spec = plan.spec();
  const bool masked = plan.model().masked_fraction > 0;
  const auto masking =
      masked ? masking_of(plan.model(), spec.sequence, training, *stream) : base::Result<Masking>(Masking{});
  if (auto all = agreed(transport, whether(masking)); !all) return base::fail(all.error());
  const auto batches = [&](TokenStream from, plan::DataOrder order) {
    Batches out(std::move(from), order, training.seed, spec.batch, spec.sequence, plan.model().vocab);
    if (masked) out.mask(*masking);
    return out;
  };
  RunData data{batches(std::move(*stream), training.order), std::nullopt};
  if (!training.evaluation) return data;
  auto held_out = TokenStream::open(tokens->held_out);
  if (auto all = agreed(transport, whether(held_out)); !all) return base::fail(all.error());
  data.held_out = batches(std::move(*held_out), plan::DataOrder::sequential);
  return data;
}

}  // namespace orrery::exec
