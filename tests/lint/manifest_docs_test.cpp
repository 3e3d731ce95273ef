// SPDX-License-Identifier: Apache-2.0
// docs/manifest.md and docs/manifest.schema.json are what the tables of the host and of the shipped
// plugins say. Needs the program and the plugins built.
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

namespace {

const std::string kCommand = "LIMBECK_PLUGIN_PATH= '" LIMBECK_BINARY_DIR
                             "/bin/limbeck' schema wan sft dmd2 basics parquet "
                             "stored_text quickstart --format ";

std::string file_text(const std::string& path) {
  std::ifstream file(LIMBECK_SOURCE_DIR "/" + path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("manifest documents: the committed ones are as the tables are now") {
  const std::string rewrite =
      "write it again: build/release/bin/limbeck schema wan sft dmd2 basics parquet stored_text "
      "quickstart --format ";
  CHECK_MESSAGE((file_text("docs/manifest.md") == limbeck::lint::output_of(kCommand + "markdown")),
                rewrite << "markdown > docs/manifest.md");
  CHECK_MESSAGE(
      (file_text("docs/manifest.schema.json") == limbeck::lint::output_of(kCommand + "json")),
      rewrite << "json > docs/manifest.schema.json");
}

TEST_CASE("manifest documents: the comparison would notice a change") {
  CHECK(file_text("docs/manifest.md").find("| `seed` | an integer in [0, inf) | `0` |") !=
        std::string::npos);
  CHECK(limbeck::lint::output_of(kCommand + "markdown").size() > 10000);
}
