// A config text with single values changed: what if a job had another batch. The new text is read
// like any other, so that every check of its reader holds for it. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace longhaul {

/// `text` with the scalar at `path` (`batch.global`) in place of what stands there; a key that is
/// not there is added, and so are the maps on its way. The new text is one line of YAML. `name`
/// stands for the file in messages. Errors (kInvalid): no YAML; a part of the path that is no map;
/// a map or a list at its end.
Result<std::string> with_value(std::string_view text, const std::string& name,
                               std::string_view path, std::string_view value);

/// `text` with the map `map`, a text of YAML, in place of whatever stands at `path`.
Result<std::string> with_map(std::string_view text, const std::string& name, std::string_view path,
                             std::string_view map);

/// `text` without what stands at `path`, if anything does.
Result<std::string> without_key(std::string_view text, const std::string& name,
                                std::string_view path);

/// The scalar at `path` as it stands there; empty where there is none.
Result<std::string> value_at(std::string_view text, const std::string& name, std::string_view path);

}  // namespace longhaul
