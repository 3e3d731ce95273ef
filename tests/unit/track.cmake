# SPDX-License-Identifier: Apache-2.0
# What observes a run and needs no libtorch: trackers on their threads, counters, the profile.
find_package(nlohmann_json REQUIRED)
set(_track ${PROJECT_SOURCE_DIR}/core/track)
limbeck_test(
  limbeck_track_test
  LABEL
  unit
  SOURCES
  media_place_test.cpp
  performance_test.cpp
  profile_test.cpp
  trackers_test.cpp
  ${PROJECT_SOURCE_DIR}/core/train/media.cpp
  ${_track}/performance.cpp
  ${_track}/tracker_thread.cpp
  ${_track}/trackers.cpp
  LIBRARIES
  nlohmann_json::nlohmann_json)
