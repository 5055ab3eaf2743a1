#include "executor/run/model_loader.h"

#include <algorithm>
#include <utility>

#include "executor/checkpoint/model_source.h"

namespace longhaul {

Result<LoadedModel> load_model(Storage& storage, const std::string& path, Precision precision) {
  LH_ASSIGN(ModelSource source, open_model_source(storage, path));
  LH_ASSIGN(ModelStage stage,
            ModelStage::create(source.model, {0, source.model.layers, true, true}, precision));
  for (const CheckpointPart part : parts_of(source.model)) {
    for (const PartTensor& tensor : tensors_of(source.model, part)) {
      LH_ASSIGN(const std::vector<float> values, source.read(tensor));
      const auto at = std::ranges::find(stage.parameters(), tensor.name, &ModelParameter::name);
      LH_CHECK(at != stage.parameters().end(), "a checkpoint has the tensors of its model");
      std::ranges::copy(values, stage.weight(*at).begin());
    }
  }
  return LoadedModel{std::move(stage), std::move(source.path), std::move(source.companions),
                     std::move(source.notes)};
}

}  // namespace longhaul
