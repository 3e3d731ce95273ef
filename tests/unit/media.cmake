# SPDX-License-Identifier: Apache-2.0
limbeck_test(media_test LABEL unit SOURCES media_test.cpp LIBRARIES limbeck_media)
