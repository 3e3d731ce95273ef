// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/weights.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/weights/safetensors_header.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

using testing::has;
using testing::message_of;

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "limbeck-weights-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Names listing(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// 400, 400, 1200, 40 and 8 bytes, in the order of a network.
NamedTensors network() {
  return {{"patch.weight", at::arange(100, at::kFloat)},
          {"patch.bias", at::arange(100, at::kFloat) + 0.5},
          {"blocks.0.weight", at::arange(300, at::kFloat).reshape({3, 100})},
          {"blocks.0.bias", at::ones({10})},
          {"head", at::ones({4}, at::kBFloat16)}};
}

const char kSingle[] = "diffusion_pytorch_model.safetensors";
const char kIndex[] = "diffusion_pytorch_model.safetensors.index.json";

std::string shard(int index, int count) {
  return "diffusion_pytorch_model-0000" + std::to_string(index) + "-of-0000" +
         std::to_string(count) + ".safetensors";
}

void save(const fs::path& path, const NamedTensors& tensors) {
  fs::create_directories(path.parent_path());
  write_safetensors(path, tensors);
}

// Which value a folder's only tensor "x" has: tells which file was read.
double x_of(const fs::path& path) { return WeightSource(path).tensor("x").item<double>(); }
NamedTensors x(double value) { return {{"x", at::full({1}, value)}}; }

TEST_CASE("weights below the limit are one file, and come back bit for bit") {
  const Folder folder;
  write_weights(folder / "out", "{\"a\": 1}\n", network());
  CHECK(listing(folder / "out") == Names{"config.json", kSingle});
  CHECK(text_of(folder / "out" / "config.json") == "{\"a\": 1}\n");
  verify_weights(folder / "out", network());
  const WeightSource source(folder / "out");
  CHECK(source.folder() == folder / "out");
  CHECK(source.names() ==
        Names{"blocks.0.bias", "blocks.0.weight", "head", "patch.bias", "patch.weight"});
  CHECK((source.info("head").dtype == at::kBFloat16));
  CHECK(at::equal(source.tensor("patch.bias"), network()[1].second));
  CHECK(SafetensorsFile(folder / "out" / kSingle).metadata().at("format") == "pt");
}

TEST_CASE("weights above the limit are split in their order, with an index") {
  const Folder folder;
  write_weights(folder.path(), "{}", network(), 800);
  CHECK(listing(folder.path()) ==
        Names{"config.json", shard(1, 3), shard(2, 3), shard(3, 3), kIndex});
  // 400 + 400 fill the first; 1200 is larger than the limit and alone; the rest follows.
  CHECK(SafetensorsFile(folder / shard(1, 3)).tensors().size() == 2);
  CHECK(SafetensorsFile(folder / shard(2, 3)).tensors().count("blocks.0.weight") == 1);
  CHECK(SafetensorsFile(folder / shard(2, 3)).tensors().size() == 1);
  CHECK(text_of(folder / kIndex) ==
        "{\n"
        "  \"metadata\": {\n"
        "    \"total_size\": 2048\n"
        "  },\n"
        "  \"weight_map\": {\n"
        "    \"blocks.0.bias\": \"diffusion_pytorch_model-00003-of-00003.safetensors\",\n"
        "    \"blocks.0.weight\": \"diffusion_pytorch_model-00002-of-00003.safetensors\",\n"
        "    \"head\": \"diffusion_pytorch_model-00003-of-00003.safetensors\",\n"
        "    \"patch.bias\": \"diffusion_pytorch_model-00001-of-00003.safetensors\",\n"
        "    \"patch.weight\": \"diffusion_pytorch_model-00001-of-00003.safetensors\"\n"
        "  }\n"
        "}\n");
  verify_weights(folder.path(), network());
  CHECK(WeightSource(folder.path()).files().size() == 3);
  CHECK(WeightSource(folder / kIndex).names().size() == 5);

  write_weights(folder.path(), "{}", network(), 799);
  CHECK(listing(folder.path()).size() == 6);  // four shards now, and none of the old ones
  verify_weights(folder.path(), network());
}

TEST_CASE("writing again leaves no file of the old weights, and no other file is touched") {
  const Folder folder;
  put_text(folder / "README.md", "mine");
  put_text(folder / "adapter.safetensors", "mine");
  save(folder / "model.safetensors", x(1));
  write_weights(folder.path(), "{}", network(), 800);
  write_weights(folder.path(), "{}", network());
  CHECK(listing(folder.path()) ==
        Names{"README.md", "adapter.safetensors", "config.json", kSingle});
  CHECK(text_of(folder / "adapter.safetensors") == "mine");
}

TEST_CASE("weights that cannot be written leave the old ones as they were") {
  const Folder folder;
  write_weights(folder.path(), "{}", network());
  const auto before = text_of(folder / kSingle);
  auto bad = network();
  bad.emplace_back("sparse", at::ones({2}).to_sparse());
  CHECK(has(message_of([&] { write_weights(folder.path(), "{1}", bad, 800); }), "'sparse'"));
  bad.back() = network()[0];
  CHECK(has(message_of([&] { write_weights(folder.path(), "{1}", bad, 800); }),
            "two tensors are called 'patch.weight'"));
  CHECK(has(message_of([&] { write_weights(folder.path(), "{1}", {}); }), "no weights to write"));
  CHECK(has(message_of([&] { write_weights(folder.path(), "{1}", {{"y", {}}}); }), "undefined"));
  CHECK(listing(folder.path()) == Names{"config.json", kSingle});
  CHECK(text_of(folder / kSingle) == before);
  CHECK(text_of(folder / "config.json") == "{}");
  put_text(folder / "file", "");
  CHECK(has(message_of([&] { write_weights(folder / "file", "{}", network()); }),
            "cannot create a folder here"));
}

TEST_CASE("a disk that fills up at any point of an export leaves the old weights as they were") {
  const Folder folder;
  write_weights(folder.path(), "{}", network());
  const auto before = text_of(folder / kSingle);
  const auto names = listing(folder.path());
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  int failures = 0;
  // Shards of about 1000 bytes and an index of 500: every file of an export is cut once.
  for (const rlim_t limit : {1, 100, 450, 800, 1000}) {
    const struct rlimit small = {limit, old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string text;
    try {
      write_weights(folder.path(), "{\"new\": 1}", network(), 800);
    } catch (const Error& error) {
      text = error.what();
      ++failures;
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    CHECK(has(text, "File too large"));
    CHECK(listing(folder.path()) == names);
    CHECK(text_of(folder / kSingle) == before);
    CHECK(text_of(folder / "config.json") == "{}");
  }
  std::signal(SIGXFSZ, old_handler);
  CHECK(failures == 5);
  write_weights(folder.path(), "{}", network(), 800);
  verify_weights(folder.path(), network());
}

TEST_CASE("verifying notices another bit, dtype, shape, and a tensor more or less") {
  const Folder folder;
  write_weights(folder.path(), "{}", network());
  const auto refused = [&](const std::function<void(NamedTensors&)>& change) {
    auto other = network();
    change(other);
    return message_of([&] { verify_weights(folder.path(), other); });
  };
  CHECK(has(refused([](auto& t) {
              t[1].second = t[1].second.clone();
              t[1].second[7] += 1e-6;
            }),
            "tensor 'patch.bias' reads back with other bits"));
  // Equal as numbers, not as bits.
  CHECK(has(refused([](auto& t) {
              t[0].second = t[0].second.clone();
              t[0].second[0] = -0.0;
            }),
            "tensor 'patch.weight' reads back with other bits"));
  CHECK(has(refused([](auto& t) { t[4].second = t[4].second.to(at::kHalf); }),
            "tensor 'head' reads as BFloat16 [4], but Half [4] was written"));
  CHECK(has(refused([](auto& t) { t[2].second = t[2].second.reshape({100, 3}); }), "[3, 100]"));
  CHECK(has(refused([](auto& t) { t[3].first = "blocks.1.bias"; }), "'blocks.1.bias' was not"));
  CHECK(has(refused([](auto& t) { t.pop_back(); }), "has 5 tensors, but 4 were written"));
}

TEST_CASE("a folder's weights are looked for in a fixed order") {
  const Folder folder;
  save(folder / "z.safetensors", x(1));
  CHECK(x_of(folder.path()) == 1);
  save(folder / "y.safetensors", {{"other", at::ones({1})}});
  CHECK(WeightSource(folder.path()).names() == Names{"other", "x"});
  CHECK(WeightSource(folder.path()).files().front() == folder / "y.safetensors");
  save(folder / "model.safetensors", x(2));
  CHECK(x_of(folder.path()) == 2);
  save(folder / kSingle, x(3));
  CHECK(x_of(folder.path()) == 3);
  put_text(folder / "own.safetensors.index.json", R"({"weight_map": {"x": "z.safetensors"}})");
  CHECK(x_of(folder.path()) == 1);
  put_text(folder / "model.safetensors.index.json",
           R"({"weight_map": {"x": "model.safetensors"}})");
  CHECK(x_of(folder.path()) == 2);
  put_text(folder / kIndex, R"({"metadata": {}, "weight_map": {"x": "z.safetensors"}})");
  CHECK(x_of(folder.path()) == 1);
  CHECK(x_of(folder / "model.safetensors") == 2);
  CHECK(x_of(folder / "model.safetensors.index.json") == 2);
}

TEST_CASE("a pipeline folder stands for the network inside it") {
  const Folder folder;
  save(folder / "transformer" / kSingle, x(1));
  save(folder / "vae" / kSingle, x(2));
  CHECK(x_of(folder.path()) == 1);
  CHECK(WeightSource(folder.path()).folder() == folder / "transformer");
  CHECK(WeightSource(folder.path(), "vae").tensor("x").item<double>() == 2);
  CHECK(x_of(folder / "vae") == 2);
  save(folder / "model.safetensors", x(3));
  CHECK(x_of(folder.path()) == 3);  // weights of its own come first
  put_text(folder / "model_index.json", "{}");
  CHECK(x_of(folder.path()) == 1);  // unless it says that it is a pipeline
  CHECK(has(message_of([&] { WeightSource source(folder.path(), "unet"); }),
            "is a pipeline folder without a folder 'unet'"));
}

TEST_CASE("weights that are not there, or not complete, are refused with all names") {
  const Folder folder;
  const auto refused = [&] { return message_of([&] { WeightSource source(folder.path()); }); };
  CHECK(has(message_of([&] { WeightSource source(folder / "none"); }), "does not exist"));
  CHECK(has(refused(), "has no weights"));

  write_weights(folder.path(), "{}", network(), 400);
  REQUIRE(fs::exists(folder / shard(4, 4)));
  fs::remove(folder / shard(2, 4));
  fs::remove(folder / shard(4, 4));
  CHECK(
      has(refused(), "names 4 files, of which 2 are missing: " + shard(2, 4) + ", " + shard(4, 4)));

  write_weights(folder.path(), "{}", network(), 400);
  const auto bytes = text_of(folder / shard(3, 4));
  put_text(folder / shard(3, 4), bytes.substr(0, bytes.size() / 2));
  CHECK(has(refused(), shard(3, 4)));
}

TEST_CASE("an index that does not agree with its files is refused") {
  const Folder folder;
  const auto refused = [&](const std::string& index) {
    put_text(folder / kIndex, index);
    return message_of([&] { WeightSource source(folder.path()); });
  };
  save(folder / "a.safetensors", {{"x", at::ones({1})}, {"z", at::ones({1})}});
  save(folder / "b.safetensors", {{"y", at::ones({1})}});
  const std::string ok =
      R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}})";
  put_text(folder / kIndex, ok);
  CHECK(WeightSource(folder.path()).names() == Names{"x", "y", "z"});

  CHECK(has(refused(R"({"weight_map": {"x": "a.safetensors", "y": "a.safetensors",
                                       "z": "a.safetensors", "w": "b.safetensors"}})"),
            "2 tensors are not where it says: w (b.safetensors), y (a.safetensors)"));
  CHECK(has(refused(R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})"),
            "1 tensors are not listed: z (a.safetensors)"));
  CHECK(has(refused(R"({"weight_map": {"x": "../a.safetensors"}})"), "is said to be in"));
  CHECK(has(refused(R"({"weight_map": {"x": 3}})"), "is said to be in 3"));
  CHECK(has(refused(R"({"weight_map": {"x": "a.bin"}})"), "is said to be in \"a.bin\""));
  CHECK(has(refused(R"({"weight_map": {}})"), "weight_map is empty"));
  CHECK(has(refused(R"({"weight_map": []})"), "has no object 'weight_map'"));
  CHECK(has(refused("[]"), "has no object 'weight_map'"));
  CHECK(has(refused("{"), "is not valid JSON"));
  CHECK(has(refused(R"({"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}})"),
            "the name 'x' occurs twice"));

  save(folder / "b.safetensors", {{"y", at::ones({1})}, {"x", at::ones({1})}});
  CHECK(has(refused(ok), "tensor 'x' is also in a.safetensors"));
  fs::remove(folder / kIndex);
  CHECK(has(message_of([&] { WeightSource source(folder.path()); }), "is also in a.safetensors"));

  put_text(folder / "p.safetensors.index.json", ok);
  put_text(folder / "q.safetensors.index.json", ok);
  CHECK(has(message_of([&] { WeightSource source(folder.path()); }), "has several indices"));
}

TEST_CASE("shards beside an index that does not name them are refused, others are not") {
  const Folder folder;
  write_weights(folder.path(), "{}", network(), 800);
  save(folder / "diffusion_pytorch_model.fp16-00001-of-00001.safetensors", x(1));
  save(folder / "adapter.safetensors", x(1));
  CHECK(WeightSource(folder.path()).names().size() == 5);
  save(folder / shard(4, 4), x(1));
  CHECK(has(message_of([&] { WeightSource source(folder.path()); }),
            "does not name 1 shards that are beside it: " + shard(4, 4)));
}

TEST_CASE("an index whose shards are all gone says which weights are there instead") {
  const Folder folder;
  write_weights(folder.path(), "{}", network(), 800);
  for (int i = 1; i <= 3; ++i) {
    fs::remove(folder / shard(i, 3));
  }
  save(folder / "model.safetensors", x(2));
  const auto text = message_of([&] { WeightSource source(folder.path()); });
  CHECK(has(text, "names 3 files, of which 3 are missing"));
  CHECK(has(text, "the index is of older weights; remove it to read model.safetensors"));
  fs::remove(folder / kIndex);
  CHECK(x_of(folder.path()) == 2);
}

TEST_CASE("files of which only the headers are read have the same faults") {
  const Folder folder;
  write_weights(folder.path(), "{}", network(), 800);
  const auto found = find_weight_files(folder.path());
  CHECK(found.files.size() == 3);
  CHECK(found.index == folder / kIndex);
  const auto header = read_safetensors_header(folder / shard(1, 3));
  CHECK(header.tensors.at("patch.weight").sizes == std::vector<int64_t>{100});
  CHECK(std::string(header.tensors.at("patch.weight").type->name) == "F32");
  const auto bytes = text_of(folder / shard(1, 3));
  put_text(folder / shard(1, 3), bytes.substr(0, bytes.size() - 1));
  CHECK(has(message_of([&] { read_safetensors_header(folder / shard(1, 3)); }), "its data end at"));
  put_text(folder / shard(1, 3), bytes.substr(0, 20));
  CHECK(has(message_of([&] { read_safetensors_header(folder / shard(1, 3)); }), "is cut short"));
  put_text(folder / shard(1, 3), "");
  CHECK(has(message_of([&] { read_safetensors_header(folder / shard(1, 3)); }), "only 0 bytes"));
  CHECK(has(message_of([&] { read_safetensors_header(folder.path()); }), "is not a regular file"));
}

TEST_CASE("an unknown tensor is named, with the nearest known one") {
  const Folder folder;
  write_weights(folder.path(), "{}", network());
  const WeightSource source(folder.path());
  CHECK(source.has("head"));
  CHECK_FALSE(source.has("haed"));
  const auto text = message_of([&] { source.tensor("haed"); });
  CHECK(has(text, "no tensor 'haed'"));
  CHECK(has(text, "'head'"));
}

TEST_CASE("a report lists everything that does not fit, ten names of each") {
  WeightReport report;
  CHECK(report.is_clean());
  report.throw_unless_clean("here");
  for (int i = 0; i < 12; ++i) {
    report.add_missing("m" + std::to_string(i));
  }
  report.add_unexpected("u");
  report.add_misshapen("s", {2, 3}, {2, 4});
  CHECK_FALSE(report.is_clean());
  const auto text = message_of([&] { report.throw_unless_clean("/some/path"); });
  CHECK(has(text,
            "/some/path: the weights do not fit: 12 missing, 1 unexpected, 1 of another shape"));
  CHECK(has(text, "m9"));
  CHECK(has(text, "... and 2 more"));
  CHECK_FALSE(has(text, "m10"));
  CHECK(has(text, "unexpected:\n    u"));
  CHECK(has(text, "s: shape [2, 3], expected [2, 4]"));
}

}  // namespace
}  // namespace limbeck
