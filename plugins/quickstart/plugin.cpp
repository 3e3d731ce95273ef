// SPDX-License-Identifier: Apache-2.0
#include <limbeck/plugin.hpp>

#include "quickstart/classifier.hpp"
#include "quickstart/digit_clips.hpp"
#include "quickstart/digit_judge.hpp"
#include "quickstart/digit_table.hpp"
#include "quickstart/digits_report.hpp"
#include "quickstart/judge_report.hpp"
#include "quickstart/pixel_shuffle.hpp"

LB_PLUGIN(lb::dataset<quickstart::DigitClips>("digit_clips",
                                              "Short clips in which a handwritten digit slides."),
          lb::network<quickstart::PixelShuffle>(
              "pixel_shuffle", "A stand-in for a VAE: blocks of 2x2 pixels become channels."),
          lb::network<quickstart::DigitTable>(
              "digit_table", "A fixed table of embeddings for \"digit 0\" to \"digit 9\"."),
          lb::network<quickstart::DigitJudge>("digit_judge",
                                              "A small classifier of frames that show a digit."),
          lb::method<quickstart::Classifier>("classifier",
                                             "Trains a judge of frames with cross entropy."),
          lb::callback<quickstart::JudgeReport>("judge_report",
                                                "Measures a judge on held-out digits."),
          lb::callback<quickstart::DigitsReport>(
              "digits_report",
              "Samples clips of all digits, measures them and draws pictures of them."))
