// A config file as our own tree, in which every value knows its place. Internal to
// core/config_*.cc: users read it through core/config_cursor.h. Not thread-safe.
//
// Invariants: the root is there and is a value; children stand in the order of the file; the names
// that a loader asked a map for are kept in the map, so that the others can be called unknown.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config_errors.h"
#include "core/result.h"

namespace longhaul {

struct ConfigNode {
  enum class Kind { kNothing, kScalar, kList, kMap };

  /// `sites[2].nodes[0].nic`; empty for the root.
  std::string path() const;
  /// The value as the subject of a sentence.
  std::string subject() const;
  /// " in `sites[2]`", to end a sentence about a key of this map; empty for the root.
  std::string in_subject() const;
  bool was_asked_for(std::string_view name) const;

  Kind kind = Kind::kNothing;
  bool quoted = false;    // of a scalar
  bool repeated = false;  // the key of this value was given before in the same map
  std::size_t offset = 0;
  std::string text;  // of a scalar

  ConfigNode* parent = nullptr;
  std::string key;             // in a map
  std::size_t key_offset = 0;  // in a map
  std::size_t index = 0;       // in a list
  std::vector<std::unique_ptr<ConfigNode>> children;

  std::vector<std::string> asked;  // names that the loader asked this map for, in that order
  bool free_names = false;         // the loader took every entry of this map
};

struct ConfigDocument {
  /// Refuses what is no YAML, and of YAML what config_cursor.h says. Repeated keys are recorded.
  static Result<std::unique_ptr<ConfigDocument>> parse(std::string_view text, std::string name);

  void record(ConfigMistake mistake) {
    if (!foreign) mistakes.add(std::move(mistake));
  }

  ConfigText text;
  std::unique_ptr<ConfigNode> root = nullptr;
  ConfigMistakes mistakes = {};
  bool foreign = false;  // the schema is another one: further mistakes would only repeat that
};

/// The path of the key `name` of the map at `path`.
std::string path_of_key(std::string_view path, std::string_view name);

}  // namespace longhaul
