#pragma once
/// Tables that live outside the device's memory: what their caches need, and how large they are.
#include <cstdint>
#include <vector>

#include "clusters/cluster.h"
#include "models/recommender.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Bytes of a row of a part, one of so many of the columns, with its optimizer states.
[[nodiscard]] std::int64_t row_bytes(const models::Recommender& model, const PlanSpec& spec, int columns);
/// Rows that the cache of a part needs room for: as many as a step may look up in it. Of a table whose rows are split
/// twice the even share of its lookups: who looks up more of them ends the run, with what would have sufficed.
[[nodiscard]] std::int64_t rows_needed(const models::Table& table, const PlanSpec& spec, int row_parts);
/// Bytes on the device for the values of a rank's samples between the input and the loss, ahead and back.
[[nodiscard]] double sample_bytes(const models::Recommender& model, const PlanSpec& spec);
/// Bytes of a cache with the books of its rows, over those of rows of so many bytes.
[[nodiscard]] double with_books(std::int64_t row);
/// Bytes on the device for what a part pools over a step's samples, ahead and back: as it is made and as it travels.
[[nodiscard]] double pooled_bytes(const models::Recommender& model, const PlanSpec& spec, int columns);
/// Bytes on the device of the cache that a part needs at least.
[[nodiscard]] std::int64_t cache_needed(const models::Recommender& model, const models::Table& table,
                                        const PlanSpec& spec, int row_parts, int columns);

/// Which tables leave the devices where all of them do not fit: first those with the fewest lookups for their bytes, to
/// the host's memory while that lasts, the others to NVMe. Empty where none needs to.
[[nodiscard]] TableTiers choose_tiers(const models::Recommender& model, const clusters::Cluster& cluster,
                                      const PlanSpec& spec);

/// Writes down where tables stand and where they live, as far as a spec leaves it open: on the devices, unless these
/// have no room for them whatever else there is.
[[nodiscard]] base::Diagnostics place_and_settle(const models::Recommender& model, const clusters::Cluster& cluster,
                                                 PlanSpec& spec);

/// A tier and the bytes of its caches for each table, of a spec whose placement is written down; empty where all are on
/// the device. One tier for all tables has a cache that a rank's parts share: each what it needs, and of what is left
/// as many times more. Diagnostics P138, P139, which point at what was written.
[[nodiscard]] base::Result<TableTiers> settle_tiers(const models::Recommender& model, const clusters::Cluster& cluster,
                                                    const PlanSpec& spec);

/// How many rows of a part a cache of so many bytes has room for.
[[nodiscard]] std::int64_t slots_of(const models::Recommender& model, const PlanSpec& spec, const TableTier& tier,
                                    std::int64_t rows, int columns);

}  // namespace orrery::plan
