// SPDX-License-Identifier: Apache-2.0
#include "core/weights/strict_json.hpp"

#include <set>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {

using nlohmann::json;

json parse_strict(std::string_view text, const std::filesystem::path& path, std::string_view part) {
  std::vector<std::set<std::string>> open_objects;
  const auto check_names = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto name = value.get<std::string>();
      if (!open_objects.back().insert(name).second) {
        throw Error(Fault::kData,
                    cat(path.string(), ": the name '", name, "' occurs twice in ", part));
      }
    }
    return true;
  };
  try {
    return json::parse(text, check_names);
  } catch (const json::exception& error) {
    throw Error(Fault::kData, cat(path.string(), ": ", part, " is not valid JSON: ", error.what()),
                "the file is damaged or was not written completely; get it again");
  }
}

}  // namespace limbeck
