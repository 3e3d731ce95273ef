// SPDX-License-Identifier: Apache-2.0
// The small things most runs use: noise, text dropout, losses, validation, trackers.
#include <limbeck/plugin.hpp>

#include "basics/flow_noise.hpp"
#include "basics/jsonl.hpp"
#include "basics/kl_reference.hpp"
#include "basics/teacher_regression.hpp"
#include "basics/teacher_score.hpp"
#include "basics/tensorboard.hpp"
#include "basics/text_dropout.hpp"
#include "basics/validation.hpp"
#include "basics/velocity_mse.hpp"

LB_PLUGIN(
    lb::prepare<basics::FlowNoise>(
        "flow_noise", "Normalises latents, draws noise and noise levels, and mixes them."),
    lb::prepare<basics::TextDropout>("text_dropout", "Takes the text from a share of the samples."),
    lb::loss<basics::VelocityMse>("velocity_mse",
                                  "Mean squared error of the velocity, weighted by noise "
                                  "level if wanted."),
    lb::loss<basics::KlReference>("kl_reference",
                                  "Squared distance of the velocity to that of a frozen reference, "
                                  "or of the network without its adapters."),
    lb::loss<basics::TeacherRegression>("teacher_regression",
                                        "Squared distance of the velocity to that of a frozen "
                                        "teacher, with guidance if wanted."),
    lb::loss<basics::TeacherScore>(
        "teacher_score",
        "Distribution matching: samples move along the difference of teacher and critic.\n\n"
        "`critic` is optional; without it the student's own prediction takes its place. The term "
        "does not train the critic: it stays as loaded unless the method trains a role of that "
        "name."),
    lb::callback<basics::Validation>("validation", "Samples videos from fixed prompts and noise."),
    lb::tracker<basics::Jsonl>("jsonl", "Metrics as lines of JSON in metrics.jsonl."),
    lb::tracker<basics::Tensorboard>("tensorboard",
                                     "Metrics and pictures for TensorBoard, in tensorboard/."))
