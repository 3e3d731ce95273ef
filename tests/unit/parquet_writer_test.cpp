// SPDX-License-Identifier: Apache-2.0
// The callback "parquet_writer" on a data set and networks made for the test.
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/ATen.h>

#include <limbeck/callback.hpp>

#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"
#include "encode_clips.hpp"
#include "sample_files.hpp"
#include "sources.hpp"

#include <doctest/doctest.h>

namespace fs = std::filesystem;
using parquet_data::EncodeClips;

namespace {

constexpr int64_t kRows = 7;

// Row k: pixels of value k, [1, 2, 4, 4]; the VAE adds `offset`. Its text has k mod 3 + 1 tokens of
// value k, padded to 3.
struct World {
  fs::path folder;
  double offset = 0.5;
  int64_t encoded = 0;  // clips, probes too
  lb_data data{};
  lb_models models{};

  World() {
    static int count = 0;
    folder = fs::temp_directory_path() /
             ("limbeck-writer-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
    data.struct_size = sizeof(data);
    data.ctx = this;
    data.length = [](const lb_data*) { return kRows; };
    data.rows = [](const lb_data*, const int64_t* indices, uint32_t n,
                   lb_batch** out) -> lb_status* {
      auto batch = std::make_unique<lb_batch>();
      limbeck::TextRows captions;
      auto pixels = at::zeros({n, 1, 2, 4, 4});
      for (uint32_t i = 0; i < n; ++i) {
        captions.push_back("row " + std::to_string(indices[i]));
        pixels[i].fill_(indices[i]);
      }
      batch->put("pixels", pixels);
      batch->put("caption", captions);
      *out = batch.release();
      return nullptr;
    };
    models.struct_size = sizeof(models);
    models.n_roles = 2;
    models.ctx = this;
    models.run = [](const lb_models* self, uint32_t role, uint32_t, const lb_batch* in,
                    lb_batch* out) -> lb_status* {
      auto& world = *static_cast<World*>(self->ctx);
      if (role == 0) {
        const auto& pixels = in->tensor("pixels");
        world.encoded += pixels.size(0);
        out->put("raw_latents", at::avg_pool3d(pixels, {1, 2, 2}) + world.offset);
        return nullptr;
      }
      const auto& prompts = *in->find<limbeck::TextRows>("prompt");
      const auto n = static_cast<int64_t>(prompts.size());
      auto context = at::zeros({n, 3, 2});
      auto mask = at::zeros({n, 3});
      for (int64_t i = 0; i < n; ++i) {
        const auto k = std::stoll(prompts[static_cast<size_t>(i)].substr(4));
        context[i].slice(0, 0, k % 3 + 1).fill_(k);
        mask[i].slice(0, 0, k % 3 + 1).fill_(1);
      }
      out->put("context", context);
      out->put("context_mask", mask);
      return nullptr;
    };
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { fs::remove_all(folder); }

  // Sends LB_ON_START to a writer of files of four rows. Returns the clips it encoded.
  int64_t start(bool overwrite = false, int64_t samples_per_file = 4) {
    EncodeClips::Options options;
    options.data_path = folder.string();
    options.batch_size = 3;
    options.samples_per_file = samples_per_file;
    options.samples_per_row_group = 2;
    options.overwrite = overwrite;
    lb_event event{};
    event.struct_size = sizeof(event);
    event.kind = LB_ON_START;
    event.models = &models;
    event.data = &data;
    encoded = 0;
    EncodeClips(options).event(lb::Event(&event));
    return encoded;
  }
  parquet_data::SampleFiles open() const {
    return parquet_data::SampleFiles(
        parquet_data::list_files(parquet_data::parse_sources({folder.string()})).paths(),
        {{"vae_latent", "text_embedding"}, {"caption"}, {"id"}}, 1 << 20);
  }
};

}  // namespace

TEST_CASE("all rows are encoded in order, texts without their padding") {
  World world;
  world.start();
  auto files = world.open();
  REQUIRE(files.rows() == kRows);
  CHECK(files.ends() == std::vector<int64_t>{2, 4, 6, 7});
  for (int64_t k = 0; k < kRows; ++k) {
    const auto sample = files.read(k);
    CHECK(sample.texts[0] == "row " + std::to_string(k));
    CHECK(sample.optional_texts[0] == "clip_" + std::to_string(k));
    CHECK(sample.tensors[0].sizes == std::vector<int64_t>{1, 2, 2, 2});
    CHECK(sample.tensors[0].value(7) == static_cast<float>(k) + 0.5F);
    CHECK(sample.tensors[0].value(7) != static_cast<float>(k));
    CHECK(sample.tensors[1].sizes == std::vector<int64_t>{k % 3 + 1, 2});
    CHECK(sample.tensors[1].value(static_cast<size_t>(2 * (k % 3) + 1)) == static_cast<float>(k));
  }
}

TEST_CASE("data that is there already is left alone") {
  World world;
  CHECK(world.start() == 2 * kRows);
  const auto file = world.folder / "worker_0/data_chunk_1.parquet";
  const auto before = fs::last_write_time(file);
  CHECK(world.start() == kRows);  // the probes
  CHECK(fs::last_write_time(file) == before);
}

TEST_CASE("data that was not finished is written again") {
  World world;
  world.start();
  fs::remove(world.folder / "worker_0/data_chunk_1.parquet");
  CHECK(world.start() == 2 * kRows);
  CHECK(world.open().rows() == kRows);
}

TEST_CASE("data of another encoder is replaced on request only") {
  World world;
  world.start();
  world.offset = 0.25;
  CHECK_THROWS_WITH_AS(world.start(), doctest::Contains("overwrite = true"), lb::Error);
  CHECK(world.open().read(3).tensors[0].value(0) == 3.5F);
  world.start(/*overwrite=*/true, /*samples_per_file=*/100);
  auto files = world.open();
  CHECK(files.rows() == kRows);
  CHECK(files.read(3).tensors[0].value(0) == 3.25F);
}

TEST_CASE("files of somebody else are never removed") {
  World world;
  fs::create_directories(world.folder / "other");
  fs::copy_file(LIMBECK_SOURCE_DIR "/configs/data/optdigits.csv", world.folder / "other/x.parquet");
  CHECK_THROWS_WITH_AS(world.start(/*overwrite=*/true), doctest::Contains("is not removed"),
                       lb::Error);
  CHECK(fs::exists(world.folder / "other/x.parquet"));
}
