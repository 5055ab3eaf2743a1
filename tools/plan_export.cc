#include "tools/plan_export.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

/// One torchrun: ranks that follow one another on a node.
struct RankRun {
  int first_rank = 0;
  int node = 0;
  std::vector<std::string> devices;  // index on the node
};

/// Where a rank is.
struct RankPlace {
  int stage = 0;
  int pipeline = 0;
  int device = 0;
};

std::string index_on_node(const Device& device) {
  return device.name.substr(device.name.rfind('/') + 1);
}

/// `10.0.0.1:7000`, `[::1]:7000` or a bare host.
std::string host_of(const Node& node) {
  const std::string& address = node.address;
  if (address.empty()) return node.name;
  if (address.front() == '[') return address.substr(1, address.find(']') - 1);
  // Two colons without brackets: an IPv6 address and no port.
  const std::size_t colon = address.find(':');
  if (colon == std::string::npos || address.find(':', colon + 1) != std::string::npos) {
    return address;
  }
  return address.substr(0, colon);
}

std::string quoted_for_shell(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

class Exporter {
 public:
  Exporter(ExportTarget target, const Plan& plan, const Topology& topology, const Job& job,
           const std::string& plan_name)
      : target_(target),
        plan_(plan),
        topology_(topology),
        job_(job),
        model_(job.model),
        name_(name_of(target)),
        plan_name_(plan_name) {
    // A path may hold a line's end, a comment must not.
    std::ranges::replace_if(plan_name_, [](unsigned char c) { return c < ' '; }, '?');
    for (int rank = 0; rank < world(); ++rank) {
      const RankPlace place = place_of(rank);
      const int node = topology.node_of(place.device);
      if (runs_.empty() || runs_.back().node != node) runs_.push_back({rank, node, {}});
      runs_.back().devices.push_back(
          index_on_node(topology.devices[static_cast<std::size_t>(place.device)]));
    }
  }

  Result<ExportedPlan> run() {
    std::vector<Error> refusals = export_refusals(target_, plan_, topology_, job_);
    if (!refusals.empty()) {
      Error error = std::move(refusals.front());
      error.others.assign(std::make_move_iterator(refusals.begin() + 1),
                          std::make_move_iterator(refusals.end()));
      return std::unexpected(std::move(error));
    }
    ExportedPlan out;
    out.files.push_back({"ranks.json", ranks_json()});
    if (target_ == ExportTarget::kMegatron) out.files.push_back({"megatron.sh", megatron_text()});
    if (target_ == ExportTarget::kTorchtitan) {
      out.files.push_back({"torchtitan.toml", torchtitan_text()});
    }
    out.files.push_back({"launch.sh", launch_text()});
    out.notes = notes();
    return out;
  }

 private:
  int stages() const { return plan_.stages(); }
  int pipelines() const { return plan_.pipelines(); }
  int world() const { return stages() * pipelines(); }
  int micro_batches() const { return plan_.micro_batches.front(); }

  RankPlace place_of(int rank) const {
    const int stage = rank / pipelines();
    const int pipeline = rank % pipelines();
    return {stage, pipeline, plan_.device(pipeline, stage)};
  }
  const Node& node(int index) const { return topology_.nodes[static_cast<std::size_t>(index)]; }
  bool has_equal_layers() const {
    return std::ranges::all_of(plan_.layers, [&](int n) { return n == plan_.layers.front(); });
  }

  // ---- what differs without another layout

  Codec coarsest_activations() const {
    Codec coarsest = Codec::kNone;
    for (const std::vector<int>& pipeline : plan_.devices) {
      for (std::size_t i = 0; i + 1 < pipeline.size(); ++i) {
        const int site = topology_.site_of(pipeline[i]);
        const int other = topology_.site_of(pipeline[i + 1]);
        if (site == other) continue;
        coarsest = std::max({coarsest, activation_codec(plan_, job_, site, other),
                             activation_gradient_codec(plan_, job_, site, other)});
      }
    }
    return coarsest;
  }
  Codec coarsest_gradients() const {
    Codec coarsest = Codec::kNone;
    for (int i = 0; i < stages(); ++i) {
      coarsest = std::max(coarsest, reduction_of(plan_, job_, i).codec);
    }
    return coarsest;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> out;
    const auto is_smaller = [](Codec codec, double raw) {
      return codec_bytes_of(codec, raw) < raw;
    };
    const Codec activations = coarsest_activations();
    const Codec gradients = coarsest_gradients();
    if (stages() > 1 && is_smaller(activations, element_bytes(job_.precision))) {
      out.push_back(
          fmt::format("the plan sends activations between sites as {}, {} sends them as "
                      "{}: its step will be slower than predicted",
                      name_of(activations), name_, name_of(job_.precision)));
    }
    if (pipelines() > 1 && is_smaller(gradients, 4)) {
      out.push_back(
          fmt::format("the plan sends gradients between sites as {}, {} sends them whole: "
                      "its step will be slower than predicted",
                      name_of(gradients), name_));
    }
    const bool has_own_exchange =
        std::ranges::any_of(plan_.reductions, [](const Reduction& reduction) {
          return reduction.shape != ReduceShape::kSharded || !reduction.shares.empty();
        });
    if (has_own_exchange) {
      out.push_back(
          fmt::format("the plan says in which shape and shares gradients are added up, {} leaves "
                      "that to NCCL: its step may take another time than predicted",
                      name_));
    }
    std::vector<std::string> without;
    for (const RankRun& run : runs_) {
      const Node& at = node(run.node);
      if (at.address.empty() && std::ranges::find(without, at.name) == without.end()) {
        without.push_back(at.name);
      }
    }
    if (!without.empty()) {
      const std::size_t shown = std::min<std::size_t>(without.size(), 3);
      const std::string more =
          without.size() > shown ? fmt::format(" and {} more", without.size() - shown) : "";
      out.push_back(fmt::format(
          "the cluster file gives no address of {}{}: the name stands for the host",
          fmt::join(without.begin(), without.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          more));
    }
    return out;
  }

  static double codec_bytes_of(Codec codec, double raw) { return bits_of(codec, 8 * raw) / 8; }

  // ---- files

  std::string ranks_json() const {
    std::vector<std::string> ranks;
    for (int rank = 0; rank < world(); ++rank) {
      const RankPlace place = place_of(rank);
      const Device& device = topology_.devices[static_cast<std::size_t>(place.device)];
      const Node& at = node(device.node);
      ranks.push_back(Json{{"rank", rank},
                           {"stage", place.stage},
                           {"pipeline", place.pipeline},
                           {"device", device.name},
                           {"kind", topology_.kind_of(place.device).name},
                           {"node", at.name},
                           {"site", topology_.sites[static_cast<std::size_t>(at.site)].name},
                           {"host", host_of(at)},
                           {"local_device", std::stoi(index_on_node(device))}}
                          .dump());
    }
    std::string out = "{\n";
    const auto add = [&out](const char* key, const Json& value) {
      out += fmt::format("  \"{}\": {},\n", key, value.dump());
    };
    add("schema", "longhaul/ranks/1");
    add("target", name_);
    add("plan", plan_name_);
    add("world_size", world());
    add("stages", stages());
    add("pipelines", pipelines());
    add("layers", plan_.layers);
    add("schedule", name_of(plan_.family));
    add("in_flight", plan_.in_flight);
    add("micro_batch", plan_.micro_batch);
    add("micro_batches", micro_batches());
    add("global_batch", job_.global_batch);
    add("precision", name_of(job_.precision));
    add("master", host_of(node(runs_.front().node)));
    return out + fmt::format("  \"ranks\": [\n    {}\n  ]\n}}\n", fmt::join(ranks, ",\n    "));
  }

  std::string launch_text() const {
    std::string how;      // the command line of each node
    std::string prepare;  // sets `command`
    switch (target_) {
      case ExportTarget::kTorchrun:
        how = "SCRIPT [ARGUMENTS]";
        prepare = fmt::format(
            "# What the script needs to know of the plan.\n"
            "export LONGHAUL_STAGES={} LONGHAUL_PIPELINES={} LONGHAUL_SCHEDULE={}\n"
            "export LONGHAUL_MICRO_BATCH={} LONGHAUL_MICRO_BATCHES={} LONGHAUL_GLOBAL_BATCH={}\n"
            "command=(\"$@\")\n",
            stages(), pipelines(), name_of(plan_.family), plan_.micro_batch, micro_batches(),
            job_.global_batch);
        break;
      case ExportTarget::kMegatron:
        how = "pretrain_gpt.py [ITS DATA, TOKENIZER AND OPTIMISER ARGUMENTS]";
        prepare =
            "source \"$(dirname \"$0\")/megatron.sh\"\n"
            "command=(\"$1\" \"${MEGATRON_ARGS[@]}\" \"${@:2}\")\n";
        break;
      case ExportTarget::kTorchtitan:
        how = "[MORE ARGUMENTS OF torchtitan.train]";
        prepare =
            "command=(-m torchtitan.train --job.config_file \"$(dirname \"$0\")/torchtitan.toml\" "
            "\"$@\")\n";
        break;
    }
    std::string out = fmt::format(
        "#!/usr/bin/env bash\n"
        "# {} under {}: {} processes, one a device. On every node, NODE being its name in the\n"
        "# cluster file:\n"
        "#\n"
        "#   bash launch.sh NODE {}\n"
        "#\n"
        "# Rank r is stage r / {} of pipeline r % {}; ranks.json lists them all.\n"
        "set -euo pipefail\n"
        "if (($# < {})); then\n"
        "  echo 'usage: bash launch.sh NODE {}' >&2\n"
        "  exit 2\n"
        "fi\n"
        "node=$1\n"
        "shift\n"
        "export MASTER_ADDR=${{MASTER_ADDR:-{}}}  # where rank 0 is; every node must reach it\n"
        "export MASTER_PORT=${{MASTER_PORT:-29500}}\n"
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID  # device 0 is the one that nvidia-smi calls 0\n",
        plan_name_, name_, world(), how, pipelines(), pipelines(),
        target_ == ExportTarget::kTorchtitan ? 1 : 2, how,
        quoted_for_shell(host_of(node(runs_.front().node))));
    out += prepare;
    const bool has_equal_runs = std::ranges::all_of(runs_, [&](const RankRun& run) {
      return run.devices.size() == runs_.front().devices.size();
    });
    if (!has_equal_runs) {
      out +=
          "\n# The torchruns have different numbers of processes. Their ranks follow one another "
          "as "
          "long as\n"
          "# TORCH_ELASTIC_WORKER_IDENTICAL is not set; check with your version.\n"
          "unset TORCH_ELASTIC_WORKER_IDENTICAL\n";
    }
    out += fmt::format(
        "\nagents=()\n"
        "trap 'kill \"${{agents[@]}}\" 2>/dev/null' INT TERM\n"
        "agent() {{  # NODE_RANK DEVICES PROCESSES: ranks that follow one another on this node\n"
        "  CUDA_VISIBLE_DEVICES=$2 torchrun --nnodes={} --node_rank=\"$1\" "
        "--nproc_per_node=\"$3\" \\\n"
        "    --master_addr=\"$MASTER_ADDR\" --master_port=\"$MASTER_PORT\" \"${{command[@]}}\" &\n"
        "  agents+=($!)\n"
        "}}\n"
        "case $node in\n",
        runs_.size());
    std::vector<std::string> names;
    for (const RankRun& run : runs_) {
      const std::string& name = node(run.node).name;
      if (std::ranges::find(names, name) != names.end()) continue;
      names.push_back(name);
      out += fmt::format("  {})\n", quoted_for_shell(name));
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (runs_[i].node != run.node) continue;
        const int first = runs_[i].first_rank;
        const int last = first + static_cast<int>(runs_[i].devices.size()) - 1;
        out += fmt::format(
            "    agent {} {} {}  # rank{}\n", i, fmt::join(runs_[i].devices, ","),
            runs_[i].devices.size(),
            first == last ? fmt::format(" {}", first) : fmt::format("s {} to {}", first, last));
      }
      out += "    ;;\n";
    }
    out += fmt::format(
        "  *)\n"
        "    echo \"launch.sh: the plan has no node $node; it has\" {} >&2\n"
        "    exit 2\n"
        "    ;;\n"
        "esac\n"
        "status=0\n"
        "for agent in \"${{agents[@]}}\"; do wait \"$agent\" || status=$?; done\n"
        "exit $status\n",
        quoted_for_shell(fmt::format("{}", fmt::join(names, ", "))));
    return out;
  }

  /// `Et*3|t*3|t*2L`: E embedding, t a layer, L the loss, | between stages.
  std::string megatron_layout() const {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      parts.push_back(fmt::format("{}t*{}{}", i == 0 ? "E" : "", plan_.layers[i],
                                  i + 1 == plan_.layers.size() ? "L" : ""));
    }
    return fmt::format("{}", fmt::join(parts, "|"));
  }

  std::string megatron_text() const {
    std::string out = fmt::format(
        "# Megatron-LM's arguments for {}. launch.sh reads this file.\n"
        "# Data parallelism has no flag: it is the world size by the stages, {} / {} = {}. Data,\n"
        "# tokenizer (vocabulary {}; Megatron pads it), optimiser and steps are yours to add. Rank "
        "order\n"
        "# is Megatron's default: do not add --use-tp-pp-dp-mapping.\n"
        "MEGATRON_ARGS=(\n",
        plan_name_, world(), stages(), pipelines(), model_.vocabulary);
    const auto add = [&out](const std::string& line) { out += "  " + line + "\n"; };
    add("--tensor-model-parallel-size 1");
    add(fmt::format("--pipeline-model-parallel-size {}", stages()));
    if (!has_equal_layers()) {
      add("# Experimental in Megatron; check with your version.");
      const auto& layers = plan_.layers;
      const bool has_equal_middle =
          std::all_of(layers.begin() + 1, layers.end() - 1, [&](int n) { return n == layers[1]; });
      if (has_equal_middle) {
        add(
            fmt::format("# One without it takes --decoder-first-pipeline-num-layers {} "
                        "--decoder-last-pipeline-num-layers {}.",
                        layers.front(), layers.back()));
      }
      add(fmt::format("--pipeline-model-parallel-layout '{}'", megatron_layout()));
    }
    add(fmt::format("--micro-batch-size {}", plan_.micro_batch));
    add(fmt::format("--global-batch-size {}", job_.global_batch));
    add(fmt::format("--num-layers {}", model_.layers));
    add(fmt::format("--hidden-size {}", model_.width));
    add(fmt::format("--ffn-hidden-size {}", model_.ffn_width));
    add(fmt::format("--num-attention-heads {}", model_.heads));
    add(fmt::format("--kv-channels {}", model_.head_width));
    if (model_.kv_heads != model_.heads) {
      add(fmt::format("--group-query-attention --num-query-groups {}", model_.kv_heads));
    }
    add(fmt::format("--seq-length {} --max-position-embeddings {}", model_.context,
                    model_.context));
    if (model_.family == ModelFamily::kLlama) {
      add("--normalization RMSNorm --swiglu --disable-bias-linear");
      add("--position-embedding-type rope");
    } else {
      add("--normalization LayerNorm --position-embedding-type learned_absolute");
    }
    if (!model_.tied_embedding) add("--untie-embeddings-and-output-weights");
    add("--attention-dropout 0 --hidden-dropout 0");
    if (job_.precision != Precision::kFp32) add(fmt::format("--{}", name_of(job_.precision)));
    if (recomputes(plan_, job_)) {
      add("# The plan keeps the input of a stage, this keeps that of each layer.");
      add("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
    }
    return out + ")\n";
  }

  std::string torchtitan_text() const {
    const bool has_pipeline = stages() > 1;
    std::string out = fmt::format(
        "# torchtitan's configuration for {}: the split and the batch. Data, optimiser and steps "
        "are\n"
        "# yours to add. Read by versions with --job.config_file; later ones are configured in "
        "Python and\n"
        "# call module_fqns_per_model_part pipeline_parallel_module_fqns_per_model_part and count "
        "micro-\n"
        "# batches (num_pp_microbatches = {}). Check with your version.\n\n",
        plan_name_, micro_batches());
    out += fmt::format(
        "[model]\n"
        "name = \"llama3\"\n"
        "# Register the job's shape under this flavor: dim={}, n_layers={}, n_heads={}, "
        "n_kv_heads={},\n"
        "# vocab_size={}, and an inner width of the MLP of {}.\n"
        "flavor = {}\n\n",
        model_.width, model_.layers, model_.heads, model_.kv_heads, model_.vocabulary,
        model_.ffn_width, Json(job_.name).dump());
    out += fmt::format(
        "[training]\n"
        "local_batch_size = {}  # sequences of a replica{}\n"
        "global_batch_size = {}\n"
        "seq_len = {}\n"
        "mixed_precision_param = \"{}\"\n"
        "mixed_precision_reduce = \"float32\"\n\n",
        has_pipeline ? plan_.micro_batch * micro_batches() : plan_.micro_batch,
        has_pipeline ? "" : " at a time", job_.global_batch, model_.context,
        job_.precision == Precision::kFp32 ? "float32" : "bfloat16");
    out += "[parallelism]\n";
    if (has_pipeline) {
      if (pipelines() > 1) {
        out +=
            "# torchtitan replicates weights only where there is no pipeline. Sharded over the "
            "replicas, a\n"
            "# gather and a reduce-scatter a step move what the plan's all-reduce moves.\n";
      }
      out += fmt::format(
          "data_parallel_replicate_degree = 1\n"
          "data_parallel_shard_degree = {}\n"
          "fsdp_reshard_after_forward = \"never\"\n",
          pipelines());
    } else {
      out += fmt::format(
          "data_parallel_replicate_degree = {}\n"
          "data_parallel_shard_degree = 1\n",
          pipelines());
    }
    out += fmt::format(
        "tensor_parallel_degree = 1\n"
        "context_parallel_degree = 1\n"
        "pipeline_parallel_degree = {}\n",
        stages());
    if (has_pipeline) {
      out += fmt::format(
          "pipeline_parallel_schedule = \"{}\"\n"
          "pipeline_parallel_microbatch_size = {}\n"
          "module_fqns_per_model_part = [\n",
          plan_.family == ScheduleFamily::kGpipe ? "GPipe" : "1F1B", plan_.micro_batch);
      int layer = 0;
      for (int stage = 0; stage < stages(); ++stage) {
        std::vector<std::string> names;
        if (stage == 0) names.push_back("\"tok_embeddings\"");
        for (int i = 0; i < plan_.layers[static_cast<std::size_t>(stage)]; ++i) {
          names.push_back(fmt::format("\"layers.{}\"", layer++));
        }
        if (stage + 1 == stages()) {
          names.push_back("\"norm\"");
          names.push_back("\"output\"");
        }
        out += fmt::format("  [{}],\n", fmt::join(names, ", "));
      }
      out += "]\n";
    }
    return out + fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n",
                             recomputes(plan_, job_) ? "full" : "none");
  }

  const ExportTarget target_;
  const Plan& plan_;
  const Topology& topology_;
  const Job& job_;
  const ModelShape& model_;
  const std::string name_;
  std::string plan_name_;
  std::vector<RankRun> runs_;
};

}  // namespace

Result<ExportedPlan> export_plan(ExportTarget target, const Plan& plan, const Topology& topology,
                                 const Job& job, const std::string& plan_name) {
  return Exporter(target, plan, topology, job, plan_name).run();
}

}  // namespace longhaul
