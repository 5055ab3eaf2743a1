// `longhaul model`: looks at models and turns those of one program into those of another.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/quantity.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/llmc.h"
#include "executor/checkpoint/model_source.h"
#include "executor/storage/real_storage.h"
#include "tools/command.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

struct ModelArguments {
  std::string source;
  std::string out;
  std::string to;
  std::string dtype;
  std::string shard_size;
  bool json = false;
};

std::uint64_t parameters_in(const ModelShape& model) {
  std::uint64_t count = 0;
  for (const CheckpointPart part : parts_of(model)) {
    for (const PartTensor& tensor : tensors_of(model, part)) count += tensor.elements();
  }
  return count;
}

std::uint64_t bytes_in(const ModelSource& source) {
  std::uint64_t bytes = 0;
  for (const auto& [name, size] : source.files) bytes += size;
  return bytes;
}

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "1,234,567"
std::string grouped(std::uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(text.begin() + at, ',');
  }
  return text;
}

std::string shape_line(const ModelShape& model) {
  std::string heads = fmt::format("{} heads of {}", model.heads, model.head_width);
  if (model.kv_heads != model.heads) heads += fmt::format(" ({} key-value)", model.kv_heads);
  return fmt::format("{}, width {}, {}, MLP {}, context {}, vocabulary {}, head {}",
                     counted(static_cast<std::size_t>(model.layers), "layer"), model.width, heads,
                     model.ffn_width, model.context, model.vocabulary,
                     model.tied_embedding ? "tied" : "untied");
}

std::string numbers_line(const ModelShape& model) {
  std::string text = "norm epsilon " + format_exact(model.norm_epsilon);
  if (model.family != ModelFamily::kLlama) return text;
  text += ", rope theta " + format_exact(model.rope_theta);
  if (const auto& scaling = model.rope_scaling) {
    text += fmt::format(" (llama3 scaling: factor {}, from {} tokens)", scaling->factor,
                        scaling->original_context);
  }
  return text;
}

nlohmann::ordered_json shown_json(const ModelSource& source) {
  const ModelShape& model = source.model;
  nlohmann::ordered_json json = {{"version", 1},
                                 {"kind", source.kind},
                                 {"path", source.path},
                                 {"family", name_of(model.family)},
                                 {"layers", model.layers},
                                 {"width", model.width},
                                 {"heads", model.heads},
                                 {"kv_heads", model.kv_heads},
                                 {"head_width", model.head_width},
                                 {"ffn_width", model.ffn_width},
                                 {"context", model.context},
                                 {"vocabulary", model.vocabulary},
                                 {"tied_embedding", model.tied_embedding},
                                 {"norm_epsilon", model.norm_epsilon}};
  if (model.family == ModelFamily::kLlama) json["rope_theta"] = model.rope_theta;
  if (const auto& scaling = model.rope_scaling) {
    json["rope_scaling"] = {{"factor", scaling->factor},
                            {"low_frequency", scaling->low_frequency},
                            {"high_frequency", scaling->high_frequency},
                            {"original_context", scaling->original_context}};
  }
  json["parameters"] = parameters_in(model);
  json["dtype"] = source.dtype;
  json["export_dtype"] = source.copy_dtype();
  json["files"] = nlohmann::ordered_json::array();
  for (const auto& [name, size] : source.files) {
    json["files"].push_back({{"name", name}, {"bytes", size}});
  }
  json["notes"] = source.notes;
  return json;
}

Result<ModelSource> open(Storage& storage, const std::string& path) {
  Result<ModelSource> source = open_model_source(storage, path);
  if (!source) return source;
  for (const std::string& note : source->notes) fmt::print(stderr, "note: {}\n", note);
  return source;
}

Result<void> show(const ModelArguments& arguments) {
  RealStorage storage;
  LH_ASSIGN(const ModelSource source, open_model_source(storage, arguments.source));
  if (arguments.json) {
    fmt::print("{}\n",
               shown_json(source).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return {};
  }
  const ModelShape& model = source.model;
  const std::string copied =
      source.copied_as.empty() ? "" : fmt::format("; exported as {}", source.copied_as);
  std::vector<std::vector<std::string>> rows = {
      {"model", fmt::format("{}, {}", name_of(model.family), source.kind)},
      {"where", source.path},
      {"shape", shape_line(model)},
      {"numbers", numbers_line(model)},
      {"parameters", grouped(parameters_in(model))},
      {"weights", fmt::format("{}, {}, {}{}", source.dtype, counted(source.files.size(), "file"),
                              format_size(Bytes(static_cast<double>(bytes_in(source)))), copied)}};
  for (const std::string& note : source.notes) rows.push_back({"note", note});
  for (const auto& row : rows) fmt::print("{:<12}{}\n", row[0], row[1]);
  return {};
}

Result<void> import(const ModelArguments& arguments) {
  RealStorage storage;
  LH_ASSIGN(const ModelSource source, open(storage, arguments.source));
  LH_TRY(import_checkpoint(storage, source, arguments.out));
  fmt::print("{}: {} of {} parameters, as a checkpoint\n", arguments.out,
             name_of(source.model.family), grouped(parameters_in(source.model)));
  return {};
}

Result<void> export_model(const ModelArguments& arguments) {
  RealStorage storage;
  HuggingFaceOptions options{.dtype = arguments.dtype};
  if (!arguments.shard_size.empty()) {
    if (arguments.to != "hugging-face") {
      return invalid("--shard-size is for Hugging Face folders: llm.c has one file");
    }
    Result<Bytes> size = parse_size(arguments.shard_size);
    if (!size) return within("--shard-size", std::move(size).error());
    options.shard_bytes = static_cast<std::uint64_t>(size->value());
  }
  LH_ASSIGN(const ModelSource source, open(storage, arguments.source));
  if (arguments.to == "hugging-face") {
    LH_TRY(write_hugging_face(storage, source, arguments.out, options));
  } else {
    LH_TRY(write_llmc(storage, source, arguments.out,
                      arguments.dtype.empty() ? source.copy_dtype() : arguments.dtype));
  }
  fmt::print("{}: {} of {} parameters, for {}\n", arguments.out, name_of(source.model.family),
             grouped(parameters_in(source.model)), arguments.to);
  return {};
}

/// A model may be sound and still too large for this machine.
void run(Result<void> (*command)(const ModelArguments&), const ModelArguments& arguments,
         int& exit_status) {
  try {
    const Result<void> result = command(arguments);
    if (!result) exit_status = report_error(result.error());
  } catch (const std::bad_alloc&) {
    exit_status = report_error(
        failed("a tensor of the model needs more memory than this machine has").error());
  }
}

constexpr const char* kSourceHelp =
    "a run (runs/NAME), a checkpoint, a Hugging Face folder, or a model file of llm.c";

}  // namespace

void add_model_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("model", "look at models, and convert them: Hugging Face, llm.c");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<ModelArguments>();  // owned by the callbacks below

  CLI::App* shown = command->add_subcommand("show", "what a model is");
  shown->add_option("source", arguments->source, kSourceHelp)->required();
  shown->add_flag("--json", arguments->json, "print one JSON document");
  shown->callback([arguments, &exit_status] { run(show, *arguments, exit_status); });

  CLI::App* imported = command->add_subcommand(
      "import", "make a checkpoint of a model, to start runs from with `launch --from`");
  imported->add_option("source", arguments->source, kSourceHelp)->required();
  imported->add_option("--out", arguments->out, "folder of the new checkpoint")->required();
  imported->callback([arguments, &exit_status] { run(import, *arguments, exit_status); });

  CLI::App* exported = command->add_subcommand("export", "write a model for another program");
  exported->add_option("source", arguments->source, kSourceHelp)->required();
  exported->add_option("--to", arguments->to, "hugging-face, or llm.c (GPT-2 alone)")
      ->required()
      ->check(CLI::IsMember({"hugging-face", "llm.c"}));
  exported->add_option("--out", arguments->out, "the new folder, or llm.c's file")->required();
  exported
      ->add_option("--dtype", arguments->dtype,
                   "of the written weights: float32, bfloat16 or float16; else what the source "
                   "had, or float32")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  exported->add_option("--shard-size", arguments->shard_size,
                       "largest file of a Hugging Face folder, 5 GB unless given");
  exported->callback([arguments, &exit_status] { run(export_model, *arguments, exit_status); });
}

}  // namespace longhaul
