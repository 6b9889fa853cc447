#pragma once
/// Tables that live outside the device's memory: what their caches need, and how large they are.
#include <cstdint>
#include <vector>

#include "clusters/cluster.h"
#include "models/recommender.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Bytes of a row of a part that has one of `columns` parts of the table's columns, with the row's optimizer states.
[[nodiscard]] std::int64_t row_bytes(const models::Recommender& model, const PlanSpec& spec, int columns);
/// Rows that a part's cache must have room for: the most that a step may look up in it. For a table split by rows, this
/// is twice the even share of its lookups; a rank that looks up more ends the run, and says what would have been
/// enough.
[[nodiscard]] std::int64_t rows_needed(const models::Table& table, const PlanSpec& spec, int row_parts);
/// Bytes on the device for the values of a rank's samples between the input and the loss, forward and backward.
[[nodiscard]] double sample_bytes(const models::Recommender& model, const PlanSpec& spec);
/// Bytes of a cache including its books, divided by the bytes of its rows, for rows of `row` bytes.
[[nodiscard]] double with_books(std::int64_t row);
/// Bytes on the device for what a part pools over a step's samples, forward and backward: as it is computed and as it
/// is sent.
[[nodiscard]] double pooled_bytes(const models::Recommender& model, const PlanSpec& spec, int columns);
/// The least bytes on the device that a part needs for its cache.
[[nodiscard]] std::int64_t cache_needed(const models::Recommender& model, const models::Table& table,
                                        const PlanSpec& spec, int row_parts, int columns);

/// Which tables leave the devices if not all of them fit: first those with the fewest lookups for their bytes. They go
/// to the host's memory while there is room, then to NVMe. Empty if none needs to leave.
[[nodiscard]] TableTiers choose_tiers(const models::Recommender& model, const clusters::Cluster& cluster,
                                      const PlanSpec& spec);

/// Fills in where tables are placed and in which memory they live, as far as a spec leaves it open: on the devices,
/// unless these have no room for them beside all else.
[[nodiscard]] base::Diagnostics place_and_settle(const models::Recommender& model, const clusters::Cluster& cluster,
                                                 PlanSpec& spec);

/// The tier and the bytes of its cache for each table, for a spec whose placement is filled in; empty where all tables
/// are on the device. If one tier is given for all tables, a rank's parts share its cache: each part gets what it
/// needs, and the rest in the same proportion. Diagnostics P138 and P139 point at the tier in the file.
[[nodiscard]] base::Result<TableTiers> settle_tiers(const models::Recommender& model, const clusters::Cluster& cluster,
                                                    const PlanSpec& spec);

/// How many rows of a part its tier's cache has room for.
[[nodiscard]] std::int64_t slots_of(const models::Recommender& model, const PlanSpec& spec, const TableTier& tier,
                                    std::int64_t rows, int columns);

}  // namespace orrery::plan
