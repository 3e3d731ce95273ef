# SPDX-License-Identifier: Apache-2.0
set(_basics ${PROJECT_SOURCE_DIR}/plugins/basics)
limbeck_test(
  basics_test
  LABEL
  unit
  SOURCES
  basics_test.cpp
  event_file_test.cpp
  ${_basics}/append_file.cpp
  ${_basics}/clips.cpp
  ${_basics}/event_file.cpp
  ${_basics}/json_lines.cpp
  LIBRARIES
  limbeck_media)
# The components with the real tensors and random numbers of core, and networks made up for it.
limbeck_test(
  basics_hooks_test
  TORCH
  LABEL
  unit
  SOURCES
  basics_hooks_test.cpp
  ${_basics}/append_file.cpp
  ${_basics}/clips.cpp
  ${_basics}/event_file.cpp
  ${_basics}/flow_noise.cpp
  ${_basics}/json_lines.cpp
  ${_basics}/jsonl.cpp
  ${_basics}/tensorboard.cpp
  ${_basics}/text_dropout.cpp
  ${_basics}/validation.cpp
  ${_basics}/velocity_error.cpp
  ${_basics}/velocity_mse.cpp
  LIBRARIES
  limbeck_media)
# Losses that see other networks.
limbeck_test(
  teacher_losses_test
  TORCH
  LABEL
  unit
  SOURCES
  teacher_losses_test.cpp
  ${_basics}/guided_teacher.cpp
  ${_basics}/kl_reference.cpp
  ${_basics}/teacher_regression.cpp
  ${_basics}/teacher_score.cpp
  ${_basics}/velocity_error.cpp)
target_include_directories(teacher_losses_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
