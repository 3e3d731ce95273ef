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

TEST_CASE("latents of another shape are refused with both shapes") {
  const Stored stored;
  stored.write(3);
  VideoRows rows(stored.open());
  lb::Batch sample;
  CHECK_NOTHROW(rows.read(2, sample));
  lb::Batch odd;
  CHECK_THROWS_WITH_AS(rows.read(3, odd),
                       doctest::Contains("row 3 of the data set: 'raw_latents' is [2, 4, 1, 2], "
                                         "but row 0 has [2, 1, 2, 4]"),
                       lb::Error);
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
