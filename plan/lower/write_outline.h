#pragma once
/// Writes outlines (plan/outline/) as steps of a lowered class: their memory becomes buffers, their groups become the
/// mesh's. Private to plan/.
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"
#include "plan/outline/outline.h"

namespace orrery::plan {

/// The shape of a lowered bucket, and what it points to.
class ShapeOf {
 public:
  ShapeOf(const Bucket& bucket, const PlanSpec& spec);
  ShapeOf(const ShapeOf&) = delete;
  ShapeOf& operator=(const ShapeOf&) = delete;
  [[nodiscard]] const BucketShape& operator*() const { return shape_; }

 private:
  std::vector<MatrixShape> matrices_;
  WholeMatrices whole_;
  BucketShape shape_;
};

using BuffersByMemory = std::array<BufferId, kMemories>;

/// The bucket that an outline is for, none for a stage's outline; the layer that its steps name; and the buffers that
/// its names stand for.
struct OutlinedBucket {
  BucketId bucket = {};
  LayerId layer = {};
  BuffersByMemory buffers = {};
  std::string label = {};  ///< prefix of the names of temporary buffers
};
/// With the bucket's own buffers.
[[nodiscard]] OutlinedBucket outlined(ClassBuilder& build, BucketId bucket, LayerId layer = {});
[[nodiscard]] BufferId& buffer_of(OutlinedBucket& bucket, Memory memory);

class OutlineWriter {
 public:
  OutlineWriter(ClassBuilder& build, const Groups& groups, Outline outline, OutlinedBucket bucket)
      : build_(build), groups_(groups), outline_(std::move(outline)), bucket_(std::move(bucket)) {}

  [[nodiscard]] int parts() const { return outline_.parts; }
  /// A part's items as steps, and the buffers of what it uses first.
  void write(int part);
  /// A part's operators in order, for a step that also has others.
  [[nodiscard]] std::vector<models::Op> operators(int part);

 private:
  void make_buffers(int part);
  [[nodiscard]] View view(int operand) const;
  [[nodiscard]] models::Op bound(models::Op op);

  ClassBuilder& build_;
  const Groups& groups_;
  Outline outline_;
  OutlinedBucket bucket_;
  std::vector<BufferId> buffers_;  ///< by slot
  int made_ = -1;                  ///< number of parts whose buffers exist
};

/// All parts at once.
void write_outline(ClassBuilder& build, const Groups& groups, Outline outline, OutlinedBucket bucket);

/// The bucket's member that holds the buffer of this memory.
[[nodiscard]] BufferId& field_of(Bucket& bucket, Memory memory);

}  // namespace orrery::plan
