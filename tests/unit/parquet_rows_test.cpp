// SPDX-License-Identifier: Apache-2.0
// The data set "parquet" on the host's own services: what it declares and what a sample holds.
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/ATen.h>

#include <limbeck/dataset.hpp>

#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"
#include "sample_writer.hpp"
#include "video_rows.hpp"

#include <doctest/doctest.h>

namespace fs = std::filesystem;
using parquet_data::VideoRows;

namespace {

class Stored {
 public:
  Stored() {
    static int count = 0;
    folder_ = fs::temp_directory_path() /
              ("limbeck-rows-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  ~Stored() { fs::remove_all(folder_); }

  // Six rows in groups of four; row k has latents k + [0, 16) and 1 + k mod 2 tokens. Row `odd` has
  // latents of another shape.
  void write(int64_t odd = -1) const {
    parquet_data::SampleWriter writer(folder_.string(), {8, 4, false, "f"});
    for (int64_t k = 0; k < 6; ++k) {
      const auto latent = at::arange(16, at::kFloat) + k;
      const auto text = at::full({1 + k % 2, 3}, static_cast<double>(k), at::kFloat);
      parquet_data::VideoRow row;
      row.id = "id" + std::to_string(k);
      row.caption = "caption " + std::to_string(k);
      row.latent = {k == odd ? std::vector<int64_t>{2, 4, 1, 2} : std::vector<int64_t>{2, 1, 2, 4},
                    latent.data_ptr<float>()};
      row.text = {text.sizes().vec(), text.data_ptr<float>()};
      writer.add(row);
    }
    writer.finish();
  }
  // A row of latents frames_of(k, frames[k]) for every number in `frames`.
  void write_frames(const std::vector<int64_t>& frames) const {
    parquet_data::SampleWriter writer(folder_.string(), {8, 4, false, "f"});
    const std::vector<float> text(3, 0);
    for (size_t k = 0; k < frames.size(); ++k) {
      const auto latent = frames_of(static_cast<int64_t>(k), frames[k]);
      parquet_data::VideoRow row;
      row.latent = {latent.sizes().vec(), latent.data_ptr<float>()};
      row.text = {{1, 3}, text.data()};
      writer.add(row);
    }
    writer.finish();
  }
  static at::Tensor frames_of(int64_t k, int64_t frames) {
    return (at::arange(2 * frames * 3, at::kFloat) + 100 * k).reshape({2, frames, 1, 3});
  }
  VideoRows open(const std::vector<const char*>& wanted = {}) const {
    VideoRows::Options options;
    options.data_path = folder_.string();
    return VideoRows(options, source(wanted));
  }
  static lb_source source(const std::vector<const char*>& wanted) {
    lb_source result{};
    result.struct_size = sizeof(result);
    result.wanted = wanted.empty() ? nullptr : wanted.data();
    return result;
  }
  std::string folder() const { return folder_.string(); }

 private:
  fs::path folder_;
};

const at::Tensor& at_tensor(const lb::Tensor& tensor) { return limbeck::tensor_of(tensor.raw()); }

}  // namespace

TEST_CASE("a sample has latents, ragged text, caption and id") {
  const Stored stored;
  stored.write();
  VideoRows rows(stored.open());
  CHECK(rows.length() == 6);
  CHECK(rows.runs() == std::vector<int64_t>{4, 6});
  const auto fields = rows.fields();
  REQUIRE(fields.size() == 4);
  CHECK(fields[0].name == "raw_latents");
  CHECK(fields[0].sizes == std::vector<int64_t>{2, 1, 2, 4});
  CHECK(fields[1].name == "context");
  CHECK(fields[1].sizes == std::vector<int64_t>{-1, 3});
  CHECK(fields[2].flags == LB_FIELD_TEXT);
  CHECK(fields[3].flags == (LB_FIELD_TEXT | LB_FIELD_OPTIONAL));
  for (const int64_t k : {5, 0, 3}) {
    lb::Batch sample;
    rows.read(k, sample);
    CHECK(at_tensor(sample["raw_latents"])
              .equal((at::arange(16, at::kFloat) + k).reshape({2, 1, 2, 4})));
    CHECK_FALSE(at_tensor(sample["raw_latents"])
                    .equal((at::arange(16, at::kFloat) + k + 1).reshape({2, 1, 2, 4})));
    CHECK(at_tensor(sample["context"])
              .equal(at::full({1 + k % 2, 3}, static_cast<double>(k), at::kFloat)));
    CHECK(sample.text("caption") == "caption " + std::to_string(k));
    CHECK(sample.text("id") == "id" + std::to_string(k));
  }
}

TEST_CASE("entries that nobody wants are neither declared nor read") {
  const Stored stored;
  stored.write();
  VideoRows rows(stored.open({"raw_latents", nullptr}));
  REQUIRE(rows.fields().size() == 1);
  lb::Batch sample;
  rows.read(2, sample);
  CHECK(sample.names() == std::vector<std::string>{"raw_latents"});
  VideoRows masked(stored.open({"context_mask", nullptr}));
  REQUIRE(masked.fields().size() == 1);
  CHECK(masked.fields()[0].name == "context");
}

TEST_CASE(
    "latents of another shape are refused when the set is opened, with the place of the first") {
  const Stored stored;
  stored.write(3);
  CHECK_THROWS_WITH_AS(
      stored.open(),
      doctest::Contains("1 of 6 samples do not fit the others: raw_latents is [2, 4, 1, 2] in '"),
      lb::Error);
  CHECK_THROWS_WITH_AS(
      stored.open(),
      doctest::Contains(
          "data_chunk_0.parquet', row 3, expected [2, 1, 2, 4]; samples of one data set"),
      lb::Error);
}

TEST_CASE("where samples are skipped, most of them decide the shape, and the odd one is refused") {
  const Stored stored;
  stored.write(0);
  VideoRows::Options options;
  options.data_path = stored.folder();
  auto source = Stored::source({});
  source.flags = LB_SOURCE_SKIPS;
  VideoRows rows(options, source);
  CHECK(rows.fields()[0].sizes == std::vector<int64_t>{2, 1, 2, 4});
  lb::Batch odd, good;
  CHECK_THROWS_WITH_AS(rows.read(0, odd), doctest::Contains("row 0: raw_latents is [2, 4, 1, 2]"),
                       lb::Error);
  CHECK_NOTHROW(rows.read(1, good));
}

TEST_CASE("latents are cut to their first frames, of every channel") {
  const Stored stored;
  stored.write_frames({3, 2, 4});
  CHECK_THROWS_WITH_AS(stored.open(), doctest::Contains("num_latent_t = 2 would cut all"),
                       lb::Error);
  VideoRows::Options options;
  options.data_path = stored.folder();
  options.num_latent_t = 2;
  VideoRows rows(options, Stored::source({}));
  CHECK(rows.fields()[0].sizes == std::vector<int64_t>{2, 2, 1, 3});
  for (const int64_t k : {0, 1, 2}) {
    lb::Batch sample;
    rows.read(k, sample);
    const auto all = Stored::frames_of(k, std::vector<int64_t>{3, 2, 4}[static_cast<size_t>(k)]);
    CHECK(at_tensor(sample["raw_latents"]).equal(all.slice(1, 0, 2)));
    CHECK(at_tensor(sample["raw_latents"]).equal(all.slice(1, all.size(1) - 2)) == (k == 1));
  }
  options.num_latent_t = 3;
  CHECK_THROWS_WITH_AS(VideoRows(options, Stored::source({})),
                       doctest::Contains("1 of 3 samples do not fit the others: raw_latents is "
                                         "[2, 2, 1, 3] in"),
                       lb::Error);
}

TEST_CASE("the fingerprint is that of the files, wherever they are") {
  const Stored stored;
  stored.write();
  const auto print = stored.open().fingerprint();
  const auto moved = stored.folder() + "-moved";
  fs::copy(stored.folder(), moved, fs::copy_options::recursive);
  VideoRows::Options options;
  options.data_path = moved;
  CHECK(VideoRows(options, Stored::source({})).fingerprint() == print);
  options.data_path += ":2";
  CHECK(VideoRows(options, Stored::source({})).fingerprint() != print);
  fs::remove_all(moved);
  const Stored other;
  other.write_frames({3});
  CHECK(other.open().fingerprint() != print);
}

TEST_CASE("sources with weights are told to the host") {
  const Stored stored;
  stored.write();
  const Stored other;
  other.write_frames({1, 1});
  VideoRows::Options options;
  options.sample_type = "text_only";
  options.mix = "weight";
  options.data_paths = {other.folder() + ":0.25", stored.folder() + ":0.75"};
  VideoRows rows(options, Stored::source({}));
  CHECK(rows.length() == 8);
  const auto mix = rows.mix();
  REQUIRE(mix.size() == 2);
  CHECK(mix[0].name == other.folder());
  CHECK(mix[0].end == 2);
  CHECK(mix[0].weight == 0.25);
  CHECK(mix[1].end == 8);
  CHECK(mix[1].weight == 0.75);
  CHECK(stored.open().mix().empty());
}

TEST_CASE("what people want to know is described") {
  const Stored stored;
  stored.write();
  lb::Batch facts;
  auto rows = stored.open();
  rows.describe(facts);
  CHECK(facts.number("files") == 1);
  CHECK(facts.number("row_groups") == 2);
  CHECK(facts.number("file_bytes") > 0);
  CHECK(facts.text("compression") == "uncompressed");
  CHECK(facts.texts("raw_latents.shapes") == std::vector<std::string>{"[2, 1, 2, 4] in 6 rows"});
  CHECK(facts.texts("context.shapes") ==
        std::vector<std::string>{"[1, 3] in 3 rows", "[2, 3] in 3 rows"});
}

TEST_CASE("text alone needs no latents") {
  const Stored stored;
  stored.write();
  VideoRows::Options options;
  options.data_paths = {stored.folder() + ":2"};
  options.sample_type = "text_only";
  VideoRows rows(options, Stored::source({}));
  CHECK(rows.length() == 12);
  CHECK(rows.fields()[0].name == "context");
}

TEST_CASE("a data set without a path says what to give") {
  const Stored stored;
  CHECK_THROWS_WITH_AS(VideoRows({}, Stored::source({})), doctest::Contains("data_path"),
                       lb::Error);
  CHECK_THROWS_WITH_AS(stored.open(), doctest::Contains("does not exist"), lb::Error);
}
