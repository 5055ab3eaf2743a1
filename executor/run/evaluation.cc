#include "executor/run/evaluation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/ops.h"

namespace longhaul {

ModelEvaluator::ModelEvaluator(ModelStage& stage, int micro_batch,
                               std::vector<std::uint32_t> bytes_of_token)
    : stage_(stage),
      micro_batch_(micro_batch),
      bytes_of_token_(std::move(bytes_of_token)),
      batch_(stage, micro_batch) {}

Result<void> ModelEvaluator::add(SequenceSource& source, std::int64_t first, std::int64_t count) {
  LH_CHECK(count >= 1 && count <= micro_batch_, "sequences fit a micro-batch");
  LH_CHECK(source.identity().context == stage_.model().context, "sequences are the model's");
  LH_ASSIGN(const MicroBatchReader reader,
            MicroBatchReader::make(source, source.identity(), 1, 0));  // its order is not used
  std::vector<std::optional<std::int64_t>> wanted(static_cast<std::size_t>(micro_batch_));
  for (std::int64_t i = 0; i < count; ++i) wanted[static_cast<std::size_t>(i)] = first + i;
  std::optional<Result<MicroBatch>> answer;
  reader.read({0, micro_batch_}, std::move(wanted),
              [&answer](Result<MicroBatch> batch) { answer = std::move(batch); });
  LH_CHECK(answer, "a local source answers at once");
  LH_ASSIGN(const MicroBatch tokens, *std::move(answer));

  std::ranges::copy(tokens.inputs, batch_.tokens().begin());
  std::ranges::copy(tokens.targets, batch_.targets().begin());
  stage_.forward(batch_);
  double loss_sum = result_.loss_sum;
  ops::add_losses(batch_.losses(), 1, loss_sum);
  if (!std::isfinite(loss_sum)) {
    return failed(
        fmt::format("the loss of sequences {} to {} is not finite", first, first + count - 1),
        "the model's training diverged; take an older checkpoint");
  }
  result_.loss_sum = loss_sum;
  result_.sequences += count;
  result_.targets += static_cast<std::uint64_t>(count * stage_.model().context);
  if (bytes_of_token_.empty()) return {};
  for (const Token target : tokens.targets) {
    if (target != kNoTarget) result_.bytes += bytes_of_token_.at(static_cast<std::size_t>(target));
  }
  return {};
}

}  // namespace longhaul
