// What `eval` judges a model on: parts of prepared data, or token shards without a dataset.yaml.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/data/sequence_source.h"
#include "executor/storage/storage.h"

namespace longhaul {

struct EvalData {
  std::string part;                                      // validation, train, all, or file
  std::vector<std::unique_ptr<SequenceSource>> sources;  // one after the other
  std::string folder;                                    // with a dataset.yaml; else empty
  std::int64_t vocabulary = 0;
  std::optional<double> bigram_loss;  // to beat on this part, nats a token

  std::int64_t sequences() const;
};

/// `path` is a folder of `data prepare`, one with shards `train` and `val`, or one shard. `part` is
/// validation, train or all; empty: validation where there is one, else all there is. Sources read
/// from the storage. Errors (kInvalid): no such data, a part that it has not, a vocabulary that is
/// not the model's, no sequence of the model's context.
Result<EvalData> open_eval_data(Storage& storage, const std::string& path, const std::string& part,
                                const ModelShape& model);

}  // namespace longhaul
