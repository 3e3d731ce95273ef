// SPDX-License-Identifier: Apache-2.0
#include <limbeck/plugin.hpp>

#include "encode_clips.hpp"
#include "video_rows.hpp"

LB_PLUGIN(lb::dataset<parquet_data::VideoRows>(
              "parquet",
              "Preprocessed text-to-video samples in Parquet files.\n\nReads the columns that "
              "FastVideo writes: vae_latent and text_embedding, each as bytes, shape and dtype, "
              "and caption."),
          lb::callback<parquet_data::EncodeClips>(
              "parquet_writer",
              "Encodes the training data into Parquet files before the first step.\n\nWrites "
              "the columns that the data set `parquet` reads; skips data that is there already."))
